"""What is fuzzed: a reader of bytes, what it may raise, and messages that it understands."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

Reader = Callable[[bytes], object]


@dataclass(frozen=True)
class Target:
    """A reader that is made anew for every sequence of messages; it may raise the errors its
    caller expects of wrong bytes, and nothing else."""

    name: str
    samples: Sequence[bytes]
    fresh: Callable[[], Reader]
    errors: tuple[type[Exception], ...] = (ValueError,)
    breaks: bool = False
    """Whether an error ends the conversation: the next message goes to a new reader."""
    slow: bool = False
    """Whether a reader costs a key exchange, for which the library takes milliseconds."""

    def __str__(self) -> str:
        return self.name

    def read(self, sequence: Sequence[bytes]) -> None:
        """Feed a sequence of messages to a new reader; raises what must not be raised."""
        self.feed(self.fresh(), sequence)

    def feed(self, reader: Reader, sequence: Sequence[bytes]) -> Reader:
        """The same to a reader that is there; return who reads on."""
        for message in sequence:
            try:
                reader(message)
            except self.errors:
                if self.breaks:
                    reader = self.fresh()
        return reader


def parser(
    name: str,
    parse: Reader,
    *samples: bytes,
    errors: tuple[type[Exception], ...] = (ValueError,),
) -> Target:
    """A target that keeps nothing from one message to the next."""
    return Target(name, samples, lambda: parse, errors)
