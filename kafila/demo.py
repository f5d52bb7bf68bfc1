"""The demo: rendezvous, three members and a chat as real processes on this machine.

Only the command line and the HTTP API are used, as a person would; nothing is shortened.
"""

import json
import signal
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from kafila import defaults
from kafila.errors import KafilaError, NetworkProblem
from kafila.processes import Processes

MEMBERS = ("anna", "bert", "cleo")
KAFILA = ("-m", "kafila")
QUESTION = "Tell me a short story about a fox and a lake."


@dataclass(frozen=True)
class Answer:
    """What the head streamed back, with the rates it measured."""

    text: str
    prompt_tokens: int
    completion_tokens: int
    tokens_per_second: float
    first_token_seconds: float


def ask(base: str, messages: list[dict[str, str]], on_text: Callable[[str], None]) -> Answer:
    """One streamed chat completion, greedily decoded; `on_text` gets the text as it comes."""
    body = {
        "model": "demo",
        "messages": messages,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    request = urllib.request.Request(
        f"{base}/v1/chat/completions",
        data=json.dumps(body).encode(),
        headers={"content-type": "application/json"},
    )
    text, began, first, last = "", time.monotonic(), 0.0, 0.0
    usage: dict[str, Any] = {}
    try:
        with urllib.request.urlopen(request, timeout=defaults.DEMO_ANSWER_SECONDS) as response:
            for event in _events(response):
                usage = event.get("usage") or usage
                for choice in event["choices"]:
                    piece = choice["delta"].get("content") or ""
                    if piece:
                        last = time.monotonic()
                        first = first or last
                        text += piece
                        on_text(piece)
    except urllib.error.HTTPError as error:
        with error:
            raise KafilaError(json.load(error)["error"]["message"]) from None
    except OSError as error:
        raise NetworkProblem(f"the head at {base} stopped answering: {error}") from None
    tokens = int(usage.get("completion_tokens", 0))
    return Answer(
        text=text,
        prompt_tokens=int(usage.get("prompt_tokens", 0)),
        completion_tokens=tokens,
        tokens_per_second=(tokens - 1) / (last - first) if last > first else 0.0,
        first_token_seconds=first - began,
    )


def _events(response: Any) -> Iterator[dict[str, Any]]:
    """The JSON objects of a server-sent event stream."""
    for raw in response:
        line = raw.decode().strip()
        if line.startswith("data: ") and line != "data: [DONE]":
            event = json.loads(line[len("data: ") :])
            if "error" in event:
                raise KafilaError(f"the ring could not answer: {event['error']['message']}")
            yield event


@contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM and a closed terminal unwind like Ctrl-C, so the children are stopped too."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {n: signal.signal(n, interrupt) for n in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run(*, once: bool, port: int, say: Callable[[str], None], write: Callable[[str], None]) -> None:
    """Run the demo. `say` shows a line of progress, `write` shows text without a line's end.

    With `once` it ends after the first answer, otherwise on Ctrl-C.
    """
    with (
        _interruptible(),
        tempfile.TemporaryDirectory(prefix="kafila-demo-") as folder,
        Processes(Path(folder)) as processes,
    ):
        plan = _probe_and_plan(processes, say)
        (processes.folder / "plan.yaml").write_text(plan)
        say("The plan:\n")
        write(plan)

        say("\nEvery member: kafila serve plan.yaml")
        began = time.monotonic()
        for name in MEMBERS:
            words = ("serve", "plan.yaml", "--home", name, "--port", str(port))
            processes.start(name, *KAFILA, *words, "--listen", "127.0.0.1:0")
        ready = processes.logged(_head(plan), "answers on ", defaults.DEMO_READY_SECONDS)
        base = ready.partition("answers on ")[2].split("/v1")[0]
        say(f"The ring is up after {time.monotonic() - began:.1f} s; it answers on {base}/v1\n")

        _converse(base, QUESTION, say, write)
        say(_predicted(plan))
        if not once:
            say(
                f"\nAsk more here, or from any OpenAI client at {base}/v1 (model: demo). "
                "Ctrl-C ends."
            )
            _stay(base, processes, say, write)


def _probe_and_plan(processes: Processes, say: Callable[[str], None]) -> str:
    """Meet through a rendezvous, measure, plan; returns the plan's YAML."""
    words = ("rendezvous", "--listen", "127.0.0.1:0", "--home", "rendezvous-home")
    processes.start("rendezvous", *KAFILA, *words)
    address = processes.line("rendezvous", defaults.DEMO_LINE_SECONDS).split()[1]
    say(f"kafila rendezvous                                 at {address}")
    host, *others = MEMBERS
    processes.start(
        host,
        *(*KAFILA, "probe", "--host", "--model", "demo", "--members", str(len(MEMBERS))),
        *("--rendezvous", address, "--home", host, "--name", host, "--listen", "127.0.0.1:0"),
    )
    code = processes.line(host, defaults.DEMO_PROBE_SECONDS)
    say(f"kafila probe --host --model demo --members {len(MEMBERS)}      {host} opens {code}")
    for name in others:
        joining = ("probe", "--join", f"{code}@{address}", "--home", name, "--name", name)
        processes.start(name, *KAFILA, *joining, "--listen", "127.0.0.1:0")
        say(f"kafila probe --join {code:<30}{name} joins")
    for name in MEMBERS:
        processes.finish(name, defaults.DEMO_PROBE_SECONDS)
    say("kafila plan --context 512 > plan.yaml             three reports are in\n")
    processes.start("plan", *KAFILA, "plan", "--context", "512")
    return processes.finish("plan", defaults.DEMO_PROBE_SECONDS)


def _head(plan: str) -> str:
    """Whom the planner made head."""
    return next(line.split()[1] for line in plan.splitlines() if line.startswith("head:"))


def _predicted(plan: str) -> str:
    """What the plan had said of one user, and why a model this small falls short of it."""
    line = next(line for line in plan.splitlines() if line.startswith("  token_us:"))
    return (
        f"(The plan predicted {line.rpartition(': ')[2]} for one user, from compute and round "
        "trips. Three processes on one\nmachine also pay about a millisecond a hop for QUIC and "
        "for waking up, which a larger model does not notice.)"
    )


def _converse(
    base: str, question: str, say: Callable[[str], None], write: Callable[[str], None]
) -> None:
    """Ask one question and show the answer with its rates."""
    say(f"you   > {question}")
    write("model > ")
    answer = ask(base, [{"role": "user", "content": question}], write)
    say(
        f"\n\n{answer.prompt_tokens} prompt tokens, first token after "
        f"{answer.first_token_seconds * 1e3:.0f} ms; {answer.completion_tokens} tokens at "
        f"{answer.tokens_per_second:.0f} tok/s round three processes"
    )


def _stay(
    base: str,
    processes: Processes,
    say: Callable[[str], None],
    write: Callable[[str], None],
) -> None:
    """Stay up until interrupted, answering what is typed where there is a terminal."""
    while True:
        processes.check()
        if not sys.stdin.isatty():
            time.sleep(1)
            continue
        write("\nyou   > ")
        question = sys.stdin.readline()
        if not question:
            return
        if question.strip():
            write("\x1b[1A\r")  # _converse repeats the question in its own place
            try:
                _converse(base, question.strip(), say, write)
            except KafilaError as error:
                say(f"\n{error}")
