"""`kafila diff`: what differs between two plans, and what that does to the predictions."""

import click


@click.command()
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of words.")
def diff(before: str, after: str, as_json: bool) -> None:
    """Say what plan B decides otherwise than plan A and what that does to the predictions.

    Figures are derived anew from what each plan decides, as `kafila check` does.

    Exit status: 0 both are plans, alike or not; 4 one is not.

    Example: kafila diff plan.yaml other.yaml
    """
    from kafila.derive import recheck
    from kafila.explain.diff import compare, words
    from kafila.planfile import read

    comparison = compare(recheck(read(before)).plan, recheck(read(after)).plan)
    if as_json:
        import json
        from dataclasses import asdict

        click.echo(json.dumps(asdict(comparison), indent=2))
    else:
        click.echo(words(comparison))
