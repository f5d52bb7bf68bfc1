"""`kafila plan`: reports in, a plan on stdout, words for people on stderr."""

import click

from kafila import defaults


@click.command()
@click.argument("files", nargs=-1, type=click.Path())
@click.option("--model", metavar="SRC", help="Folder, hub id or `demo`, for reports without one.")
@click.option(
    "--context",
    type=click.IntRange(min=1),
    default=defaults.CONTEXT,
    show_default=True,
    help="Tokens a request may span, prompt and answer together.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(min=1, max=defaults.MAX_CONCURRENCY),
    default=defaults.CONCURRENCY,
    show_default=True,
    help="Requests served at once.",
)
def plan(files: tuple[str, ...], model: str | None, context: int, concurrency: int) -> None:
    """Divide a model over the members whose reports are in FILES (default: probes.yaml).

    Prints the plan; nothing is printed on stdout unless it is admitted.

    Example: kafila plan --context 8192 > plan.yaml
    """
    from kafila.derive import merge, plan_probes
    from kafila.manifest import Manifest
    from kafila.plantext import render, summary
    from kafila.probe.report import read_probes

    probes = merge([(file, read_probes(file)) for file in files or ("probes.yaml",)])
    manifest = Manifest.of(model) if model else None
    made = plan_probes(probes, context=context, concurrency=concurrency, manifest=manifest)
    click.echo(render(made), nl=False)
    click.echo(summary(made), err=True)
