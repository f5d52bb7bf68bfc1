"""`kafila serve`: be the member of a plan that this machine's key belongs to."""

from typing import TYPE_CHECKING, Any

import click

from kafila import defaults

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kafila.address import Address
    from kafila.net.identity import Identity
    from kafila.planfile import PlanFile
    from kafila.serve.head import Head
    from stages.stage import Stage


@click.command(epilog="Example: kafila serve plan.yaml")
@click.argument("file", metavar="PLAN", type=click.Path())
@click.option(
    "--model",
    metavar="SRC",
    help="Where the checkpoint is: folder, hub id or `demo`.  [default: the plan's name for it]",
)
@click.option("--home", type=click.Path(), default=defaults.HOME, show_default=True, help="Keys.")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="0.0.0.0:0",
    show_default=True,
    help="UDP address of this process; port 0 is any.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=defaults.API_PORT,
    show_default=True,
    help="On the head: where the API answers, on 127.0.0.1.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Bring this member's edges up, show them beside the plan, and end. Run it on every member "
    "at once. Exit status 0: as planned or better (a warning where one is relayed that should be "
    "direct), 6: one does not come up.",
)
@click.option("--json", "as_json", is_flag=True, help="With --check: print one JSON object.")
def serve(
    file: str,
    model: str | None,
    home: str,
    listen: str,
    port: int,
    check: bool,
    as_json: bool,
) -> None:
    """Serve PLAN as one of its members: meet the others, load this member's blocks, compute.

    The head answers on an OpenAI-compatible API. Ctrl-C ends; the others are told.
    """
    import asyncio
    from pathlib import Path

    from kafila.address import parse_address
    from kafila.errors import UsageProblem
    from kafila.net.identity import Identity
    from kafila.planfile import read
    from kafila.serve import entry
    from kafila.serve.verify import beside

    if as_json and not check:
        raise UsageProblem("--json goes with --check: what else is served has no end to print")

    plan = read(file)
    identity = Identity.load_or_create(Path(home).expanduser())
    me = entry.place(plan, identity)
    local = parse_address(listen, any_port=True)
    entry.admit(plan)
    kept = beside(Path(file), plan.ring[me].name)
    if check:
        asyncio.run(_check(plan, me, identity, local, kept, as_json))
    else:
        asyncio.run(_serve(plan, me, identity, model or plan.model.name, local, port, kept))


async def _check(
    plan: "PlanFile",
    me: int,
    identity: "Identity",
    listen: "Address",
    kept: "Path",
    as_json: bool,
) -> None:
    """Only the edges: no model is needed for that, and no port."""
    import asyncio
    import json
    import signal

    from kafila.errors import NetworkProblem
    from kafila.serve import check, verify
    from kafila.serve.view import Lines

    # Ended early, nothing is verified: SIGTERM must not look like 0 either.
    asyncio.get_running_loop().add_signal_handler(
        signal.SIGTERM, signal.raise_signal, signal.SIGINT
    )
    with Lines() as shown:
        found = await check.check(plan, me, identity, view=shown, listen=listen)
        findings = verify.findings(plan, me, found)
        click.echo(json.dumps(findings, indent=2) if as_json else verify.table(found))
        verify.keep(kept, findings, shown.say)
        if worse := verify.shortcoming(found):
            shown.say(f"warning: {worse}")
        if broken := verify.broken(found):
            raise NetworkProblem(broken)
        if found and not worse:
            shown.say("every edge of this member is as planned or better")


async def _serve(
    plan: "PlanFile",
    me: int,
    identity: "Identity",
    source: str,
    listen: "Address",
    port: int,
    kept: "Path",
) -> None:
    """Put checkpoint, stage, ring and API together; ends by an error, Ctrl-C or SIGTERM."""
    import asyncio
    import signal

    from kafila.api import server
    from kafila.api.app import Api
    from kafila.api.model import Model
    from kafila.serve import load, runtime, verify
    from kafila.serve.view import view

    load.check(plan, source)
    listener = server.bind(port) if me == 0 else None
    name, model = plan.model.name, None
    loop = asyncio.get_running_loop()

    def open_stage(on_progress: "Callable[[str, int, int], None]") -> "Stage":
        nonlocal model
        folder = load.fetch(plan, me, source)
        if me == 0:  # the others know nothing of text
            model = Model.open(name, folder)
        stage = load.open_stage(plan, me, folder, on_progress)
        words = f"blocks {plan.ring[me].blocks} loaded on {stage.devices}"
        loop.call_soon_threadsafe(shown.say, words)
        return stage

    async def api(head: "Head", health: "Callable[[], dict[str, Any]]") -> None:
        assert listener is not None
        assert model is not None

        def say(base: str) -> None:
            shown.say(f"{plan.head} answers on {base}/v1 (model: {name})")

        await server.answer(Api(head, model, health).application(), listener, say)

    task = asyncio.current_task()
    terminated = False

    def terminate() -> None:
        nonlocal terminated
        terminated = True
        if task:
            task.cancel()

    loop.add_signal_handler(signal.SIGTERM, terminate)
    try:
        with view() as shown:
            await runtime.serve(
                plan,
                me,
                identity,
                open_stage=open_stage,
                api=api,
                view=shown,
                listen=listen,
                verified=lambda found: verify.keep(
                    kept, verify.findings(plan, me, found), shown.say
                ),
            )
    except asyncio.CancelledError:
        if not terminated:  # Ctrl-C is told to the user, SIGTERM is an ordinary end
            raise
    finally:
        if listener:
            listener.close()
