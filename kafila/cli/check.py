"""`kafila check`: an edited plan derived anew, what changed, and whether it is still admitted."""

import click


@click.command()
@click.argument("file", metavar="PLAN")
@click.option("--write", is_flag=True, help="Write the fresh figures into PLAN (its own comments).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of words.")
def check(file: str, write: bool, as_json: bool) -> int:
    """Derive stage times, needs, edges and predictions of PLAN anew and say what changed.

    Exit status: 0 admitted, 3 not admitted, 4 not a valid plan.

    Example: kafila check plan.yaml
    """
    from kafila import yamlfile
    from kafila.derive import findings, recheck
    from kafila.planfile import read
    from kafila.plantext import render, summary

    def words(value: object) -> str:
        return "none" if value == () else yamlfile.flow(value)

    found = recheck(read(file))
    if as_json:
        import json

        click.echo(json.dumps(findings(found), indent=2))
    else:
        for change in found.changes:
            click.echo(f"{change.where}: {words(change.was)} in the file, now {words(change.now)}")
        for note in found.notes:
            click.echo(note)
        if not found.refused:
            forced = any(member.need_bytes > member.room_bytes for member in found.plan.ring)
            click.echo(f"{file}: {'forced; it does not fit' if forced else 'admitted'}")
            click.echo(summary(found.plan))
    if write and found.changes:
        yamlfile.write(file, render(found.plan))
    if found.refused and not as_json:
        raise found.refused
    return found.refused.exit_code if found.refused else 0
