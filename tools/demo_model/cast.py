"""Who and what the stories are about: animals, people, places and things, with words on each."""

from __future__ import annotations

import random
from dataclasses import dataclass

ANIMALS = [
    "fox",
    "owl",
    "bear",
    "mouse",
    "rabbit",
    "hedgehog",
    "frog",
    "duck",
    "cat",
    "dog",
    "horse",
    "wolf",
    "badger",
    "squirrel",
    "otter",
    "deer",
    "goat",
    "sheep",
    "crow",
    "robin",
    "swan",
    "turtle",
    "snail",
    "bee",
    "lion",
    "tiger",
    "elephant",
    "monkey",
    "camel",
    "penguin",
    "whale",
    "dolphin",
    "seal",
    "crab",
    "dragon",
    "hen",
    "goose",
    "donkey",
    "pony",
    "lizard",
    "parrot",
    "beaver",
    "ant",
    "butterfly",
    "spider",
    "puppy",
    "kitten",
    "fish",
    "bird",
    "cow",
    "pig",
    "snake",
    "koala",
    "panda",
    "unicorn",
    "robot",
]

PEOPLE = {
    "she": ["girl", "woman", "queen", "princess", "grandmother", "witch", "sister"],
    "he": ["boy", "man", "king", "prince", "grandfather", "wizard", "brother"],
    "they": [
        "baker",
        "sailor",
        "farmer",
        "teacher",
        "painter",
        "doctor",
        "fisher",
        "knight",
        "pirate",
        "gardener",
        "child",
    ],
}

NAMES = {
    "she": [
        "Mia",
        "Lena",
        "Anna",
        "Nora",
        "Zara",
        "Ida",
        "Lucy",
        "Ruth",
        "Tara",
        "Amina",
        "Sofia",
        "Clara",
        "Maya",
        "Elsa",
        "Rosa",
        "Hana",
        "Vera",
        "Alice",
        "Leila",
        "Emma",
    ],
    "he": [
        "Tom",
        "Ben",
        "Omar",
        "Felix",
        "Hugo",
        "Max",
        "Leo",
        "Sam",
        "Paul",
        "Karim",
        "Jonas",
        "Ivan",
        "Noah",
        "Peter",
        "Oscar",
        "Ali",
        "Finn",
        "Adam",
        "Emil",
        "Jack",
    ],
}

PET_NAMES = [
    "Pip",
    "Tilo",
    "Bramble",
    "Hazel",
    "Nuka",
    "Momo",
    "Olo",
    "Juniper",
    "Fenn",
    "Wim",
    "Tansy",
    "Pico",
    "Luma",
    "Bodo",
    "Kiki",
    "Rusty",
    "Willow",
    "Tuck",
    "Sorrel",
    "Mossy",
    "Pepper",
    "Zuzu",
    "Biscuit",
    "Fern",
    "Nilo",
    "Dot",
    "Clover",
    "Basil",
    "Tumi",
    "Opal",
]

# place: (preposition with article, what one sees there, what can be found or grown there)
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
    """Someone in a story."""

    kind: str  # "fox", "girl", or an invented word
    name: str
    they: str  # subject pronoun
    them: str
    their: str


def hero(rng: random.Random, kind: str | None = None, name: str | None = None) -> Hero:
    """A hero of `kind` called `name`; what is left open is drawn."""
    if kind is None:
        people = [word for words in PEOPLE.values() for word in words]
        kind = rng.choice(ANIMALS if rng.random() < 0.75 else people)
    gender = next((pronoun for pronoun, words in PEOPLE.items() if kind in words), None)
    if name is not None and gender is None:
        gender = next((pronoun for pronoun, names in NAMES.items() if name in names), None)
    person = gender is not None
    if gender is None or gender == "they":
        gender = rng.choice(("she", "he"))
    if name is None:
        name = rng.choice(NAMES[gender] if person else PET_NAMES)
    them, their = {"she": ("her", "her"), "he": ("him", "his")}[gender]
    return Hero(kind, name, gender, them, their)
