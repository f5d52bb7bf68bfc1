"""`kafila plan`: reports in, a plan on stdout, words for people on stderr."""

from typing import TYPE_CHECKING

import click

from kafila import defaults

if TYPE_CHECKING:
    from stages.config import Kept


def _number(context: click.Context, option: click.Parameter, value: float) -> float:
    """A range lets `nan` through, which is within none."""
    if value != value:
        raise click.BadParameter("nan is not a number in the range 0<=x<=1.")
    return value


@click.command()
@click.argument("files", nargs=-1)
@click.option("--model", metavar="SRC", help="Folder, hub id or `demo`, for reports without one.")
@click.option(
    "--dtype",
    type=click.Choice(["int8"]),
    help="Keep the blocks' matrices in 8 bits, with a scale for each row.  "
    "[default: as the reports' model]",
)
@click.option(
    "--context",
    type=click.IntRange(min=1),
    help="Tokens a request may span, prompt and answer together.  "
    f"[default: {defaults.CONTEXT}, or what the model reaches]",
)
@click.option(
    "--concurrency",
    type=click.IntRange(min=1, max=defaults.MAX_CONCURRENCY),
    default=defaults.CONCURRENCY,
    show_default=True,
    help="Requests served at once.",
)
@click.option(
    "--rendezvous",
    metavar="HOST[:PORT]",
    help="Where the members meet to serve.  [default: where they probed]",
)
@click.option(
    "--strategy",
    type=click.Choice(["load", "bottleneck", "uniform", "memory", "bandwidth"]),
    default="load",
    show_default=True,
    help="What divides the blocks: the time between tokens of all requests, the slowest stage, "
    "or a rule to compare with.",
)
@click.option("--compare", is_flag=True, help="Print all strategies side by side, and no plan.")
@click.option("--without", metavar="NAME", multiple=True, help="Leave a member out (repeatable).")
@click.option("--head", metavar="NAME", help="The member that is to be head.")
@click.option(
    "--head-margin",
    type=click.FloatRange(min=0, max=1),
    callback=_number,
    default=defaults.HEAD_MARGIN,
    show_default=True,
    help="What another head must gain over the one who opened the session.",
)
@click.option(
    "--order",
    type=click.Choice(["cost", "relays"]),
    default="cost",
    show_default=True,
    help="Arrange the ring by round trips, or only by the number of relayed edges.",
)
@click.option(
    "--punch",
    type=click.Choice(["birthday"]),
    help="Where one of two NATs gives every destination another port and the other filters by "
    "port, guess at ports until a direct path is found. Some routers dislike it.",
)
@click.option("--force", is_flag=True, help="Plan what does not fit; the plan warns of it.")
def plan(
    files: tuple[str, ...],
    model: str | None,
    dtype: str | None,
    context: int | None,
    concurrency: int,
    rendezvous: str | None,
    strategy: str,
    compare: bool,
    without: tuple[str, ...],
    head: str | None,
    head_margin: float,
    order: str,
    punch: str | None,
    force: bool,
) -> None:
    """Divide a model over the members whose reports are in FILES (default: probes.yaml).

    Prints the plan; nothing is printed on stdout unless it is admitted.

    Example: kafila plan --context 8192 > plan.yaml
    """
    from pathlib import Path
    from typing import cast

    from kafila import derive, plantext, reports
    from kafila.address import parse_address
    from kafila.errors import BadFile
    from kafila.manifest import Manifest
    from kafila.plan.make import Wishes
    from kafila.plan.values import Order, Strategy
    from kafila.planfile import Edges
    from kafila.probe.report import read_probes

    if not files and not Path("probes.yaml").exists():
        raise BadFile(
            "probes.yaml: no such file; run kafila probe first, or name the files of the reports"
        )
    probes = reports.merge([(file, read_probes(file)) for file in files or ("probes.yaml",)])
    probes = reports.without(probes, without)
    if rendezvous:
        probes = reports.meeting_at(probes, parse_address(rendezvous))
    manifest = Manifest.of(model) if model else probes.manifest
    if manifest is not None:
        manifest = manifest.kept_as(cast("Kept | None", dtype))
    wishes = Wishes(
        strategy=cast(Strategy, strategy),
        order=cast(Order, order),
        head=head,
        margin=head_margin,
        force=force,
    )
    if compare:
        rows = derive.compare_probes(
            probes, context=context, concurrency=concurrency, manifest=manifest, wishes=wishes
        )
        click.echo(plantext.comparison(rows, concurrency))
        return
    made = derive.plan_probes(
        probes,
        context=context,
        concurrency=concurrency,
        manifest=manifest,
        wishes=wishes,
        edges=Edges(punch="birthday") if punch else None,
    )
    click.echo(plantext.render(made), nl=False)
    click.echo(plantext.summary(made), err=True)
