"""`kafila serve`: be the member of a plan that this machine's key belongs to."""

from typing import TYPE_CHECKING, Any

import click

from kafila import defaults

if TYPE_CHECKING:
    from collections.abc import Callable

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
def serve(file: str, model: str | None, home: str, listen: str, port: int) -> None:
    """Serve PLAN as one of its members: meet the others, load this member's blocks, compute.

    The head answers on an OpenAI-compatible API. Ctrl-C ends; the others are told.
    """
    import asyncio
    from pathlib import Path

    from kafila.address import parse_address
    from kafila.net.identity import Identity
    from kafila.planfile import read
    from kafila.serve import entry

    plan = read(file)
    identity = Identity.load_or_create(Path(home).expanduser())
    me = entry.place(plan, identity)
    local = parse_address(listen, any_port=True)
    entry.admit(plan)
    asyncio.run(_serve(plan, me, identity, model or plan.model.name, local, port))


async def _serve(
    plan: "PlanFile",
    me: int,
    identity: "Identity",
    source: str,
    listen: tuple[str, int],
    port: int,
) -> None:
    """Put checkpoint, stage, ring and API together; ends by an error, Ctrl-C or SIGTERM."""
    import asyncio
    import signal

    from kafila.api import server
    from kafila.api.app import Api
    from kafila.api.model import Model
    from kafila.serve import load, runtime
    from kafila.serve.view import view

    load.check(plan, source)
    listener = server.bind(port) if me == 0 else None
    name, model = plan.model.name, None

    def open_stage(on_progress: "Callable[[str, int, int], None]") -> "Stage":
        nonlocal model
        folder = load.fetch(plan, me, source)
        if me == 0:  # the others know nothing of text
            model = Model.open(name, folder)
        return load.open_stage(plan, me, folder, on_progress)

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

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
    try:
        with view() as shown:
            await runtime.serve(
                plan, me, identity, open_stage=open_stage, api=api, view=shown, listen=listen
            )
    except asyncio.CancelledError:
        if not terminated:  # Ctrl-C is told to the user, SIGTERM is an ordinary end
            raise
    finally:
        if listener:
            listener.close()
