"""What must hold before a member does anything: its own keys, and that its plan still fits.

Needs the plan and the identity only: no network, checkpoint or JAX.
"""

from kafila.derive import recheck
from kafila.errors import BadFile, IdentityProblem
from kafila.net.identity import Identity
from kafila.planfile import PlanFile
from kafila.serve.frames import MOST_NUMBERED
from kafila.session.meet import ring_index
from kafila.words import short


def place(plan: PlanFile, identity: Identity) -> int:
    """Which member of the plan this machine is.

    Raises IdentityProblem if it is none, or if its exchange key is not the one that was planned
    with: the others would not believe it, and could not say why.
    """
    me = ring_index(plan, identity.key)
    planned, own = plan.ring[me].exchange_key, identity.exchange_key
    if planned != own.hex():
        raise IdentityProblem(
            f"{identity.key_file.with_name('exchange.pem')} was replaced since {plan.ring[me].name}"
            f" was probed: the plan has the exchange key {short(planned)}, this machine "
            f"{short(own)}. Restore the file, or probe and plan again"
        )
    return me


def rows(plan: PlanFile) -> int:
    """Requests at once in one group."""
    return -(-plan.session.concurrency // plan.groups)


def admit(plan: PlanFile) -> None:
    """Derive an edited plan anew, as `kafila check` does; the figures it was written with may lie.

    Raises NotAdmitted if it does not fit (unless it was forced), BadFile if it asks for more
    requests than frames can number.
    """
    concurrency = plan.session.concurrency
    if concurrency > MOST_NUMBERED:  # so are its groups and their rows at most
        raise BadFile(
            f"the plan is for {concurrency} requests at once, at most {MOST_NUMBERED} can be told "
            "apart in its groups and rows; plan with a smaller --concurrency"
        )
    if refused := recheck(plan).refused:
        raise refused
