"""Short stories with a beginning, a middle and an end; requests for them, questions on them."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from . import cast, plots
from .cast import Hero
from .plots import lines
from .words import article, capital


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
    noun: str  # "lake"
    view: str
    thing: str | None
    thing_power: str
    mood: str


_MOODS = ("brave", "little", "clever", "shy", "curious", "kind", "old", "young", "lonely", "small")

_OPENINGS = (
    "Once upon a time, {a_mood_kind} named {name} lived {place}.",
    "Once there was {a_mood_kind} called {name}, who lived {place}.",
    "{place_cap} lived {a_mood_kind} named {name}.",
    "Long ago, {a_mood_kind} named {name} made {their} home {place}.",
)

_CLOSINGS = ("", "", "", "The end.", "And that is how they became the best of friends.")


def _tell(scene: Scene, rng: random.Random) -> str:
    hero, friend = scene.hero, scene.friend
    intro = f"{article(friend.kind)} named {friend.name}"
    words = {
        "name": hero.name,
        "they": hero.pronoun,
        "They": capital(hero.pronoun),
        "them": hero.them,
        "their": hero.their,
        "themself": hero.them + "self",
        "place": scene.place,
        "place_cap": capital(scene.place),
        "ground": f"the {scene.noun}",
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


# What a request names, of hero, friend, place and thing, and how often.
_WANTS = {
    (1, 0, 0, 0): 5,
    (1, 0, 1, 0): 9,
    (1, 1, 0, 0): 4,
    (1, 0, 0, 1): 5,
    (0, 0, 1, 0): 1,
    (0, 0, 0, 1): 1,
    (0, 0, 0, 0): 2,
}


def _scene(asks: tuple[int, int, int, int], named: bool, rng: random.Random) -> Scene:
    """A scene: what is asked for is drawn freely, the rest follows from it as far as it can."""
    asks_hero, asks_friend, asks_place, asks_thing = asks
    noun = rng.choice(tuple(cast.PLACES))
    hero = rng.choice(cast.CAST if asks_hero else cast.at_home(noun))
    if asks_hero and rng.random() < 0.12:
        hero = cast.stranger(cast.invented_word(rng))
    if not asks_place:
        noun = rng.choice(hero.homes)
    if named and rng.random() < 0.6:
        name = rng.choice(cast.NAMES) if rng.random() < 0.5 else cast.invented_word(rng)
        hero = replace(hero, name=capital(name))
    preposition, view = cast.PLACES[noun]
    if asks_place and rng.random() < 0.08:
        noun, preposition = cast.invented_word(rng), "in"
        view = "It was a strange and wonderful place."
    friends = cast.CAST if asks_friend else cast.at_home(noun)
    friends = tuple(f for f in friends if f.kind != hero.kind and f.name != hero.name) or cast.CAST
    friend = rng.choice([f for f in friends if f.kind != hero.kind])
    thing = rng.choice(tuple(cast.THINGS)) if asks_thing or rng.random() < 0.2 else None
    power = cast.THINGS[thing] if thing else ""
    if asks_thing and rng.random() < 0.12:
        thing, power = cast.invented_word(rng), "nobody had ever seen anything like it"
    mood = rng.choice(_MOODS)
    return Scene(hero, friend, f"{preposition} the {noun}", noun, view, thing, power, mood)


def _subject(scene: Scene, asks: tuple[int, int, int, int], named: bool, rng: random.Random) -> str:
    """What the request says the story shall be about."""
    asks_hero, asks_friend, asks_place, asks_thing = asks
    hero, noun = scene.hero, scene.noun
    wanted: list[str] = []
    if asks_hero and named:
        called = f"{article(hero.kind)} {rng.choice(('named', 'called'))} {hero.name}"
        wanted.append(rng.choice((called, called, f"{hero.name} the {hero.kind}")))
    elif asks_hero:
        plain = article(hero.kind)
        mooded = article(f"{scene.mood} {hero.kind}")
        wanted.append(
            rng.choice((plain, plain, mooded, rng.choice((hero.kind, f"the {hero.kind}"))))
        )
    if asks_friend:
        wanted.append(article(scene.friend.kind))
    if asks_place:
        wanted.append(rng.choice((article(noun), f"the {noun}")))
    if asks_thing and scene.thing:
        wanted.append(rng.choice((article(scene.thing), f"a magic {scene.thing}")))
    if asks_hero and asks_place and rng.random() < 0.3:
        return f"{wanted[0]} {scene.place}"
    if asks_hero and asks_thing and rng.random() < 0.3:
        return f"{wanted[0]} who finds {wanted[1]}"
    return " and ".join(wanted)


def draw(rng: random.Random) -> Story:
    """A story, a request that it answers, and questions on it."""
    asks = rng.choices(tuple(_WANTS), tuple(_WANTS.values()))[0]
    named = bool(asks[0]) and rng.random() < 0.15
    scene = _scene(asks, named, rng)
    form = rng.choice(_ASKS if any(asks) else _OPEN_ASKS)
    request = form.format(x=_subject(scene, asks, named, rng))
    return Story(request, _tell(scene, rng), _follow_ups(scene))
