"""`kafila explain`: a plan's ring as a picture, and the reasons for it in words."""

from typing import Any

import click

COLOURS: dict[str, dict[str, Any]] = {
    "strong": {"bold": True},
    "faint": {"dim": True},
    "compute": {"fg": "blue"},
    "slowest": {"fg": "yellow"},
    "memory": {"fg": "cyan"},
    "over": {"fg": "red"},
    "relayed": {"fg": "yellow"},
}


@click.command()
@click.argument("file", metavar="PLAN")
@click.option("--svg", metavar="FILE", type=click.Path(), help="Write the picture to FILE as well.")
def explain(file: str, svg: str | None) -> None:
    """Show PLAN as a ring: who computes and holds how much, what each edge costs, and why.

    Figures are derived anew from what PLAN decides, as `kafila check` does.

    Exit status: 0 done, 4 not a valid plan.

    Example: kafila explain plan.yaml --svg plan.svg
    """
    import os
    import shutil
    import sys

    from kafila import yamlfile
    from kafila.derive import recheck
    from kafila.explain import text
    from kafila.explain.picture import picture
    from kafila.explain.svg import draw
    from kafila.planfile import read

    found = recheck(read(file))
    shown = picture(found.plan)
    encoding = sys.stdout.encoding or "ascii"
    if svg:
        yamlfile.write(svg, draw(shown))
    width = min(shutil.get_terminal_size((80, 24)).columns, 100)
    for line in text.lines(shown, width, text.glyphs_for(encoding)):
        styled = "".join(click.style(part, **COLOURS.get(style, {})) for part, style in line)
        printable = styled.encode(encoding, "replace").decode(encoding)
        click.echo(printable.rstrip(), color=False if os.environ.get("NO_COLOR") else None)
    if found.refused or found.changes:
        what = "does not fit its members" if found.refused else "has figures that are not fresh"
        click.echo(f"{file} {what}: kafila check {file}", err=True)
