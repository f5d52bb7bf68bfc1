"""Who and what the stories are about: animals, people, places and things, with words on each.

A fox is always called Tilo and at home in the forest: what a request leaves open follows from what
it says. Chance would make better stories only in a model with the room to learn them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

# kind: name, pronoun, homes
_CAST = """
fox: Tilo, he, forest meadow hill
owl: Hazel, she, tower forest library
bear: Bodo, he, cave mountain forest
mouse: Pip, she, mill library school
rabbit: Clover, she, meadow hill garden
hedgehog: Bramble, he, garden meadow
frog: Olo, he, pond river
duck: Dot, she, pond lake
cat: Momo, she, village city ship
dog: Rusty, he, farm village beach
horse: Juno, she, farm meadow
wolf: Fenn, he, mountain forest hill
badger: Tuck, he, hill forest cave
squirrel: Nilo, he, forest garden
otter: Luma, she, river lake
deer: Fern, she, forest meadow
goat: Kiki, she, mountain bridge hill
sheep: Wolla, she, hill meadow farm
crow: Karo, he, tower castle
robin: Basil, he, garden school
swan: Opal, she, lake castle
turtle: Tumi, he, beach island pond
snail: Mossy, he, garden bridge
bee: Zuzu, she, garden meadow
lion: Leon, he, desert jungle
tiger: Tara, she, jungle
elephant: Edda, she, jungle
monkey: Pico, he, jungle ship market
camel: Kamil, he, desert
penguin: Pia, she, beach island
whale: Willow, she, sea
dolphin: Delia, she, sea
seal: Selma, she, beach sea
crab: Kuno, he, beach island
dragon: Drago, he, cave castle mountain
hen: Berta, she, farm market
goose: Gisa, she, farm pond
donkey: Emil, he, mill market
pony: Biscuit, he, farm
lizard: Lino, he, desert
parrot: Pepper, he, island jungle ship
beaver: Bruno, he, river lake
ant: Anton, he, hill garden
butterfly: Bella, she, meadow garden
spider: Silke, she, lighthouse castle tower
puppy: Poldi, he, village city
kitten: Minka, she, village library
fish: Finja, she, lake river sea
bird: Birka, she, forest city train
cow: Moona, she, farm meadow
pig: Pauli, he, farm market
snake: Sina, she, jungle desert
koala: Koko, she, jungle
panda: Pandi, he, jungle mountain
unicorn: Iris, she, forest moon
robot: Robo, he, city moon train
girl: Mia, she, village city school
woman: Ruth, she, city lighthouse
queen: Elsa, she, castle
princess: Rosa, she, castle tower
grandmother: Alma, she, village mill
witch: Vera, she, forest cave
sister: Ida, she, village
boy: Tom, he, village city school
man: Hugo, he, city train
king: Oskar, he, castle
prince: Felix, he, castle tower
grandfather: Karl, he, village lighthouse
wizard: Omar, he, tower cave
brother: Ben, he, village
baker: Paul, he, market village
sailor: Ole, he, ship sea island
farmer: Greta, she, farm
teacher: Lucy, she, school
painter: Clara, she, city beach
doctor: Amina, she, city village
fisher: Jonas, he, lake river sea
knight: Max, he, castle bridge
pirate: Jack, he, ship island
gardener: Nora, she, garden
child: Sam, he, village school
miller: Adam, he, mill river
"""

NAMES = [
    *("Mia", "Lena", "Anna", "Zara", "Sofia", "Maya", "Hana", "Alice", "Leila", "Emma", "Nora"),
    *("Tom", "Leo", "Sam", "Karim", "Ivan", "Noah", "Peter", "Ali", "Finn", "Adam", "Max", "Ben"),
]

# place: (preposition, what one sees there)
PLACES: dict[str, tuple[str, str]] = {
    "lake": ("by", "The water was still and as clear as glass."),
    "forest": ("in", "The trees were so tall that they tickled the clouds."),
    "river": ("by", "The water sang over the stones all day."),
    "mountain": ("on", "The air was cold there, and one could see very far."),
    "meadow": ("in", "The grass was full of flowers and small sounds."),
    "village": ("in", "The houses were small and the doors were never locked."),
    "garden": ("in", "Beans and roses grew there side by side."),
    "sea": ("by", "The waves came and went like a slow breath."),
    "island": ("on", "There was blue water on every side."),
    "castle": ("in", "It had a hundred rooms and one very old clock."),
    "farm": ("on", "It smelled of hay and warm bread."),
    "desert": ("in", "The sand was gold by day and silver by night."),
    "city": ("in", "The streets were loud and the lamps were bright."),
    "pond": ("by", "Green leaves floated on the water like little boats."),
    "cave": ("in", "It was dark inside, and every word came back twice."),
    "hill": ("on", "The wind never stopped to rest there."),
    "lighthouse": ("in", "Every night its light turned slowly over the waves."),
    "library": ("in", "The shelves went up and up to the roof."),
    "market": ("by", "It was full of voices, apples and bells."),
    "mill": ("in", "The big wheel turned and turned in the stream."),
    "bridge": ("under", "All day long feet went over it, tap, tap, tap."),
    "beach": ("on", "The sand was full of shells after every tide."),
    "jungle": ("in", "The leaves were as big as doors."),
    "school": ("near", "A bell rang there every morning."),
    "moon": ("on", "The ground was grey and the sky was full of stars."),
    "tower": ("in", "It had two hundred steps and a small round window."),
    "train": ("on", "The wheels sang the same song all the way."),
    "ship": ("on", "It creaked and rocked and smelled of salt."),
}

# thing: what it could do, as "it ..."
THINGS: dict[str, str] = {
    "key": "it opened a little door that nobody had seen before",
    "lantern": "it shone so brightly that nobody lost the way again",
    "boat": "it carried everybody safely over the water",
    "kite": "it flew so high that all could see it from afar",
    "drum": "it made such a merry sound that everyone began to dance",
    "map": "it showed the way to a quiet place full of berries",
    "book": "it was full of stories for the long winter nights",
    "bell": "it rang so clearly that all the neighbours came",
    "clock": "it told everyone when it was time for tea",
    "ball": "it bounced and rolled, and everyone wanted to play",
    "feather": "it was so light that it danced in the air",
    "stone": "it was as smooth as an egg and warm in the sun",
    "shell": "it held the sound of the sea inside",
    "ring": "it shone like a small sun",
    "apple": "it was big enough for everyone to have a slice",
    "cake": "it was sweet enough to make everyone smile",
    "blanket": "it kept them all warm through the cold night",
    "star": "it lit up the whole night",
    "umbrella": "it kept three friends dry in the rain",
    "flute": "it played a tune that made the birds listen",
    "hat": "it was so large that two could sleep in it",
    "egg": "it opened with a crack, and a tiny bird looked out",
    "flower": "it smelled so sweet that the bees came from far away",
    "tree": "it gave shade to everyone in the hot summer",
    "box": "it was full of buttons, and no two were the same",
    "coin": "it brought good luck to everyone who held it",
    "mirror": "it showed everyone with a smile",
    "wheel": "it turned and turned and pulled the heaviest cart",
}

_SYLLABLES = [
    "ba",
    "be",
    "bo",
    "da",
    "do",
    "fa",
    "fi",
    "ga",
    "ka",
    "ki",
    "ko",
    "la",
    "le",
    "li",
    "lo",
    "ma",
    "mi",
    "mo",
    "na",
    "ni",
    "no",
    "pa",
    "po",
    "ra",
    "ri",
    "ro",
    "sa",
    "si",
    "ta",
    "ti",
    "to",
    "va",
    "vi",
    "za",
    "zo",
]
_ENDS = ["", "", "n", "r", "s", "x", "l", "m", "rk", "nd", "ck"]


def invented_word(rng: random.Random) -> str:
    """A word nobody knows, so that the model learns to repeat words it has not met."""
    return "".join(rng.choices(_SYLLABLES, k=rng.randint(1, 3))) + rng.choice(_ENDS)


@dataclass(frozen=True)
class Hero:
    """Someone in a story; the pronoun is `he` or `she`."""

    kind: str
    name: str
    pronoun: str
    homes: tuple[str, ...]

    @property
    def them(self) -> str:
        """The pronoun as an object."""
        return {"she": "her", "he": "him"}[self.pronoun]

    @property
    def their(self) -> str:
        """The possessive pronoun."""
        return {"she": "her", "he": "his"}[self.pronoun]


def _cast() -> tuple[Hero, ...]:
    found = []
    for line in _CAST.strip().splitlines():
        kind, _, rest = line.partition(": ")
        name, pronoun, homes = rest.split(", ")
        found.append(Hero(kind, name, pronoun, tuple(homes.split())))
    return tuple(found)


CAST = _cast()


def stranger(kind: str) -> Hero:
    """A hero of a kind that nobody knows."""
    return Hero(kind, "Zibo", "he", tuple(PLACES))


def at_home(place: str) -> tuple[Hero, ...]:
    """Who may live at `place`; everybody, where nobody is known to."""
    return tuple(hero for hero in CAST if place in hero.homes) or CAST
