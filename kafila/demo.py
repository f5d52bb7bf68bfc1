"""The demo: rendezvous, three members and a chat as real processes on this machine.

Only the command line and the HTTP API are used, as a person would; nothing is shortened.
"""

import json
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Any

from kafila import defaults
from kafila.errors import KafilaError, NetworkProblem

MEMBERS = ("anna", "bert", "cleo")
QUESTION = "Tell me a short story about a fox and a lake."


@dataclass(frozen=True)
class Answer:
    """What the head streamed back, with the rates it measured."""

    text: str
    prompt_tokens: int
    completion_tokens: int
    tokens_per_second: float
    first_token_seconds: float


class Processes:
    """The demo's `kafila` processes: started here, and none outlives it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, subprocess.Popen[str]] = {}

    def start(self, who: str, *words: str) -> subprocess.Popen[str]:
        """Start `kafila WORDS` in the background; its stderr goes to a file named after `who`."""
        with self._log(who).open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "kafila", *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=self._folder,
                start_new_session=True,  # Ctrl-C reaches the demo alone, which stops the rest
            )
        self._running[who] = process
        return process

    def finish(self, who: str, seconds: float) -> str:
        """Wait for `who` to end well; returns its stdout."""
        process = self._running[who]
        try:
            out, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise NetworkProblem(f"{who} did not finish within {seconds:.0f} s") from None
        self._running.pop(who)
        if process.returncode:
            raise KafilaError(f"{who} failed: {self.last_words(who)}")
        return out

    def check(self) -> None:
        """Raise if any process ended by itself."""
        for who, process in self._running.items():
            if process.poll() is not None:
                raise KafilaError(f"{who} stopped: {self.last_words(who)}")

    def last_words(self, who: str) -> str:
        """The last line `who` wrote on stderr."""
        lines = self._log(who).read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def stop(self) -> None:
        """End all: politely, then by force."""
        for process in self._running.values():
            if process.poll() is None:
                process.terminate()
        deadline = time.monotonic() + defaults.DEMO_STOP_SECONDS
        for process in self._running.values():
            try:
                process.wait(timeout=max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout:
                process.stdout.close()
        self._running.clear()

    def _log(self, who: str) -> Path:
        return self._folder / f"{who}.log"


def read_line(stream: IO[str] | None, processes: Processes) -> str:
    """One line of a background process' stdout; raises if the process ends before it says one."""
    assert stream is not None
    line = stream.readline()
    if not line:
        time.sleep(0.1)  # the ended process is reaped a moment after its pipe closes
        processes.check()
        raise KafilaError("a process closed its output without a word")
    return line.strip()


def wait_ready(base: str, processes: Processes, seconds: float) -> None:
    """Wait until the head answers on `base`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        processes.check()
        try:
            with urllib.request.urlopen(f"{base}/health", timeout=2):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.1)
    raise NetworkProblem(f"the head did not answer on {base} within {seconds:.0f} s")


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
def _interrupted_by_terminate() -> Iterator[None]:
    """SIGTERM unwinds like Ctrl-C, so the children are stopped too."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def run(*, once: bool, port: int, say: Callable[[str], None], write: Callable[[str], None]) -> None:
    """Run the demo. `say` shows a line of progress, `write` shows text without a line's end.

    With `once` it ends after the first answer, otherwise on Ctrl-C.
    """
    with ExitStack() as stack:
        stack.enter_context(_interrupted_by_terminate())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kafila-demo-")))
        processes = Processes(folder)
        stack.callback(processes.stop)

        plan = _probe_and_plan(processes, folder, say)
        (folder / "plan.yaml").write_text(plan)
        say("The plan:\n")
        write(plan)

        say("\nEvery member: kafila serve plan.yaml")
        for name in MEMBERS:
            processes.start(
                name,
                "serve",
                "plan.yaml",
                "--home",
                name,
                "--listen",
                "127.0.0.1:0",
                "--port",
                str(port),
            )
        base = f"http://127.0.0.1:{port}"
        began = time.monotonic()
        wait_ready(base, processes, defaults.DEMO_READY_SECONDS)
        took = time.monotonic() - began
        say(f"The ring is up after {took:.1f} s; the head answers on {base}/v1\n")

        _converse(base, QUESTION, say, write)
        if once:
            return
        say(f"\nAsk more here, or from any OpenAI client at {base}/v1 (model: demo). Ctrl-C ends.")
        _stay(base, processes, say, write)


def _probe_and_plan(processes: Processes, folder: Path, say: Callable[[str], None]) -> str:
    """Meet through a rendezvous, measure, plan; returns the plan's YAML."""
    words = ("rendezvous", "--bind", "127.0.0.1:0", "--home", "rendezvous-home")
    rendezvous = processes.start("rendezvous", *words)
    address = read_line(rendezvous.stdout, processes).split()[1]
    say(f"kafila rendezvous                         at {address}")
    host, *others = MEMBERS
    opened = processes.start(
        host,
        *("probe", "--host", "--model", "demo", "--members", str(len(MEMBERS))),
        *("--rendezvous", address, "--home", host, "--name", host, "--listen", "127.0.0.1:0"),
    )
    code = read_line(opened.stdout, processes)
    say(f"kafila probe --host --model demo          {host} opens session {code}")
    for name in others:
        joining = ("probe", "--join", f"{code}@{address}", "--home", name, "--name", name)
        processes.start(name, *joining, "--listen", "127.0.0.1:0")
        say(f"kafila probe --join {code}    {name} joins")
    for name in MEMBERS:
        processes.finish(name, defaults.DEMO_PROBE_SECONDS)
    say("kafila plan > plan.yaml                   three reports are in\n")
    processes.start("plan", "plan", "--context", "512")
    return processes.finish("plan", defaults.DEMO_PROBE_SECONDS)


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
            write("\x1b[1A")  # _converse repeats the question in its own place
            _converse(base, question.strip(), say, write)
