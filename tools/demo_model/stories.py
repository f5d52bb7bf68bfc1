"""Short stories with a beginning, a middle and an end; requests for them, questions on them."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from . import cast, plots
from .cast import Hero
from .facts import article, capital
from .plots import lines


@dataclass(frozen=True)
class Story:
    """A request, the story that answers it, and what can be asked about the story."""

    request: str
    text: str
    follow_ups: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Scene:
    """What the plots draw on."""

    hero: Hero
    friend: Hero
    place: str  # "by the lake"
    ground: str  # "the lake"
    view: str
    thing: str | None
    thing_power: str
    mood: str


_MOODS = [
    "brave",
    "little",
    "clever",
    "shy",
    "curious",
    "kind",
    "old",
    "sleepy",
    "cheerful",
    "lonely",
    "quiet",
    "proud",
    "small",
    "young",
    "tiny",
    "gentle",
]

_OPENINGS = (
    "Once upon a time, {a_mood_kind} named {name} lived {place}.",
    "Once there was {a_mood_kind} called {name}, who lived {place}.",
    "{place_cap} lived {a_mood_kind} named {name}.",
    "Long ago, {a_mood_kind} named {name} made {their} home {place}.",
)

_CLOSINGS = ("", "", "", "The end.", "And that is how they became the best of friends.")


def _friend_words(friend: Hero, rng: random.Random) -> str:
    return rng.choice(
        (
            f"{article(friend.kind)} named {friend.name}",
            f"{article(friend.kind)} called {friend.name}",
        )
    )


def _tell(scene: Scene, rng: random.Random) -> str:
    hero, friend = scene.hero, scene.friend
    intro = _friend_words(friend, rng)
    words = {
        "name": hero.name,
        "they": hero.they,
        "They": capital(hero.they),
        "them": hero.them,
        "their": hero.their,
        "themself": hero.them + "self",
        "place": scene.place,
        "place_cap": capital(scene.place),
        "ground": scene.ground,
        "view": scene.view,
        "a_mood_kind": article(f"{scene.mood} {hero.kind}"),
        "friend_intro": intro,
        "Friend_intro": capital(intro),
        "fname": friend.name,
        "fthem": friend.them,
        "thing": scene.thing or "",
        "a_thing": article(scene.thing or ""),
        "power": scene.thing_power,
    }
    plot = rng.choice(plots.PLAIN if scene.thing is None else plots.WITH_THING)
    steps = [rng.choice(_OPENINGS), *(rng.choice(step) for step in plot), rng.choice(_CLOSINGS)]
    return " ".join(step.format(**words) for step in steps if step)


_ASKS = lines("""
Tell me a short story about {x}.
Tell me a story about {x}.
Write a short story about {x}.
Write a story about {x}.
Can you tell me a story about {x}?
A story about {x}, please.
I want to hear a story about {x}.
Story about {x}
Make up a story about {x}.
Tell a bedtime story about {x}.
Please write me a little story about {x}.
Do you know a story about {x}?
Once more, a story about {x}!
Give me a short story with {x}.
Tell me about {x} in a story.
Could you write a short tale about {x}?
I would like a story about {x}.
""")

_OPEN_ASKS = lines("""
Tell me a story.
Tell me a short story.
Write a story.
Can you tell me a story?
I want a story.
A story, please.
Tell me a bedtime story.
Another story, please.
Tell me another one.
One more story!
Do you know a story?
Write a short story.
Tell me a funny story.
Story time!
Make up a story.
""")


def _follow_ups(scene: Scene) -> tuple[tuple[str, str], ...]:
    hero, friend = scene.hero, scene.friend
    name_is = f"The {hero.kind} is called {hero.name}."
    lived = f"{hero.name} lived {scene.place}."
    result = [
        (f"What is the name of the {hero.kind}?", name_is),
        (f"What was the {hero.kind} called?", name_is),
        (f"What was the {hero.kind}'s name?", name_is),
        (f"Where did {hero.name} live?", lived),
        (f"Where did the {hero.kind} live?", lived),
        (f"Who is {friend.name}?", f"{friend.name} is the {friend.kind} in the story."),
        (f"Who is {hero.name}?", f"{hero.name} is the {hero.kind} in the story."),
        ("Who was the friend?", f"The friend was {article(friend.kind)} named {friend.name}."),
    ]
    if scene.thing is not None:
        result.append(
            ("What was the story about?", f"It was about {article(scene.thing)} and two friends.")
        )
    else:
        result.append(
            (
                "What was the story about?",
                f"It was about {hero.name} the {hero.kind} and {friend.name} the {friend.kind}.",
            )
        )
    return tuple(result)


def draw(rng: random.Random) -> Story:
    """A story and a request that it answers: what was asked for is in it, the rest is drawn."""
    asks_hero, asks_friend, asks_place, asks_thing = rng.choices(
        (
            (1, 0, 0, 0),
            (1, 0, 1, 0),
            (1, 1, 0, 0),
            (1, 0, 0, 1),
            (0, 0, 1, 0),
            (0, 0, 0, 1),
            (0, 0, 0, 0),
        ),
        (5, 8, 4, 5, 1, 1, 2),
    )[0]
    kind = cast.invented_word(rng) if asks_hero and rng.random() < 0.15 else None
    hero = cast.hero(rng, kind)
    named = bool(asks_hero) and rng.random() < 0.2
    if named and rng.random() < 0.3:
        hero = replace(hero, name=capital(cast.invented_word(rng)))
    friend = cast.hero(rng)
    while friend.kind == hero.kind or friend.name == hero.name:
        friend = cast.hero(rng)
    noun = rng.choice(tuple(cast.PLACES))
    preposition, view = cast.PLACES[noun]
    if asks_place and rng.random() < 0.08:
        noun, preposition, view = (
            cast.invented_word(rng),
            "in",
            "It was a strange and wonderful place.",
        )
    thing = rng.choice(tuple(cast.THINGS)) if asks_thing or rng.random() < 0.25 else None
    power = cast.THINGS[thing] if thing else ""
    if asks_thing and rng.random() < 0.12:
        thing, power = cast.invented_word(rng), "nobody had ever seen anything like it"
    mood = rng.choice(_MOODS)
    place = f"{preposition} the {noun}"
    scene = Scene(hero, friend, place, f"the {noun}", view, thing, power, mood)

    wanted: list[str] = []
    if asks_hero:
        words = hero.kind if rng.random() < 0.7 else f"{mood} {hero.kind}"
        called = rng.choice((" named ", " called ")) + hero.name if named else ""
        wanted.append(article(words) + called)
        if named and rng.random() < 0.3:
            wanted[0] = rng.choice((hero.name, f"{hero.name} the {hero.kind}"))
        elif not named and rng.random() < 0.1:
            wanted[0] = rng.choice((hero.kind, f"the {hero.kind}", f"{words}s"))
    if asks_friend:
        wanted.append(article(friend.kind))
    if asks_place:
        wanted.append(rng.choice((article(noun), f"the {noun}")))
    if asks_thing and thing:
        wanted.append(
            rng.choice(
                (article(thing), f"a magic {thing}") if rng.random() < 0.2 else (article(thing),)
            )
        )
    form = rng.choice(_ASKS if wanted else _OPEN_ASKS)
    if asks_hero and asks_place and rng.random() < 0.3:
        subject = f"{wanted[0]} {place}"
    elif asks_hero and asks_thing and rng.random() < 0.3:
        subject = f"{wanted[0]} who finds {wanted[1]}"
    else:
        subject = " and ".join(wanted)
    return Story(form.format(x=subject), _tell(scene, rng), _follow_ups(scene))
