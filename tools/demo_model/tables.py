"""The tables behind `facts`: rows of `left: right`, separated by semicolons."""

COLOURS = """
the sky: blue; grass: green; snow: white; a lemon: yellow; a banana: yellow; coal: black; blood:
red; a tomato: red; a strawberry: red; a carrot: orange; a pumpkin: orange; a leaf: green; the sun:
yellow; milk: white; the night: black; chocolate: brown; a frog: green; a flamingo: pink; a cherry:
red; the sea: blue; sand: yellow; a cloud: white; a polar bear: white; a raven: black; an orange:
orange; a cucumber: green; salt: white; ink: blue; a rose: red; a plum: purple; a violet: purple; a
pig: pink; a fox: red; an elephant: grey; a mouse: grey; a stone: grey; wood: brown; gold: yellow;
silver: grey; a chick: yellow; a pea: green; rice: white; an apple: red; the moon: white; a
crocodile: green; a bear: brown; a swan: white; coffee: brown; fire: orange; honey: yellow
"""

SOUNDS = """
dog: woof; cat: meow; cow: moo; sheep: baa; duck: quack; pig: oink; lion: roar; owl: hoot; bee:
buzz; snake: hiss; horse: neigh; rooster: cock-a-doodle-doo; frog: croak; mouse: squeak; wolf:
howl; bird: tweet; donkey: hee-haw; goat: maa; hen: cluck; turkey: gobble; crow: caw; elephant:
toot; bear: growl; chick: cheep; goose: honk; tiger: roar; puppy: yap; kitten: mew; raven: croak;
fly: buzz
"""

OPPOSITES = """
hot: cold; big: small; up: down; left: right; day: night; fast: slow; happy: sad; old: new; open:
closed; full: empty; light: dark; wet: dry; high: low; long: short; hard: soft; early: late; rich:
poor; clean: dirty; loud: quiet; strong: weak; good: bad; in: out; on: off; black: white; near:
far; first: last; young: aged; thick: thin; heavy: weightless; true: false; yes: no; love: hate;
win: lose; begin: end; push: pull; buy: sell; give: take; north: south; east: west; inside:
outside; above: below; brave: afraid; sweet: sour; deep: shallow; wide: narrow; smooth: rough;
safe: dangerous; always: never; more: less; friend: enemy; summer: winter; morning: evening; laugh:
cry; remember: forget; awake: asleep; easy: difficult; question: answer; arrive: leave; kind:
cruel; cheap: expensive
"""

CAPITALS = """
France: Paris; Germany: Berlin; Italy: Rome; Spain: Madrid; Portugal: Lisbon; England: London;
Scotland: Edinburgh; Wales: Cardiff; Ireland: Dublin; Norway: Oslo; Sweden: Stockholm; Finland:
Helsinki; Denmark: Copenhagen; Iceland: Reykjavik; Poland: Warsaw; Austria: Vienna; Hungary:
Budapest; Greece: Athens; Turkey: Ankara; Russia: Moscow; Ukraine: Kyiv; Belgium: Brussels; the
Netherlands: Amsterdam; Switzerland: Bern; Romania: Bucharest; Bulgaria: Sofia; Croatia: Zagreb;
Serbia: Belgrade; Egypt: Cairo; Morocco: Rabat; Kenya: Nairobi; Nigeria: Abuja; Ethiopia: Addis
Ababa; Ghana: Accra; Japan: Tokyo; China: Beijing; India: New Delhi; Iran: Tehran; Iraq: Baghdad;
Thailand: Bangkok; Vietnam: Hanoi; South Korea: Seoul; Indonesia: Jakarta; Canada: Ottawa; the
United States: Washington; Mexico: Mexico City; Cuba: Havana; Brazil: Brasilia; Argentina: Buenos
Aires; Chile: Santiago; Peru: Lima; Australia: Canberra; New Zealand: Wellington
"""

BABIES = """
dog: a puppy; cat: a kitten; cow: a calf; sheep: a lamb; horse: a foal; bear: a cub; lion: a cub;
fox: a cub; wolf: a pup; duck: a duckling; hen: a chick; frog: a tadpole; pig: a piglet; goat: a
kid; deer: a fawn; kangaroo: a joey; goose: a gosling; swan: a cygnet; owl: an owlet; elephant: a
calf; whale: a calf; seal: a pup; rabbit: a kit; tiger: a cub; eagle: an eaglet
"""

HOMES = """
fish: the water; bird: a nest; bee: a hive; bear: a cave; rabbit: a burrow; spider: a web; dog: a
kennel; lion: the savanna; penguin: the far south; camel: the desert; whale: the sea; frog: a pond;
owl: a hollow tree; ant: an anthill; horse: a stable; pig: a sty; polar bear: the far north;
monkey: the jungle; fox: a den; cow: a barn; squirrel: a tree; crab: the sand by the sea; mouse: a
hole; hen: a coop; shark: the sea; deer: the forest; wolf: the forest; snail: its shell; duck: the
reeds of a pond
"""

FOOD = """
cow: grass; rabbit: carrots; monkey: bananas; panda: bamboo; cat: fish; bee: nectar; mouse: cheese;
horse: hay; squirrel: nuts; bear: honey and berries; bird: seeds; lion: meat; koala: leaves; sheep:
grass; goat: nearly everything; frog: flies; spider: flies; fox: mice and berries; dog: meat and
biscuits; penguin: fish; owl: mice; hen: grain; pig: turnips; giraffe: leaves; elephant: leaves and
fruit; wolf: meat; duck: water plants; tiger: meat; caterpillar: leaves; seal: fish
"""

LEGS = """
dog: four; cat: four; spider: eight; bird: two; ant: six; bee: six; snake: no; fish: no; horse:
four; cow: four; hen: two; duck: two; person: two; crab: ten; fly: six; beetle: six; table: four;
chair: four; worm: no; snail: no; elephant: four; octopus: no; butterfly: six; lion: four; penguin:
two; frog: four; mouse: four; whale: no; lizard: four; tripod: three
"""

MEANINGS = """
fox: a clever animal with a red coat and a bushy tail; cat: a soft animal that purrs and chases
mice; dog: a loyal animal that likes to run and to fetch sticks; horse: a large animal that people
ride; owl: a bird that sees well at night; bee: an insect that makes honey; whale: the largest
animal of the sea; penguin: a bird that swims well but cannot fly; frog: a small green animal that
jumps and lives near water; camel: an animal of the desert that can go for days without water;
spider: a small animal that spins webs; elephant: the largest animal on land, with a long trunk;
mouse: a very small animal with a long tail; bear: a big, strong animal with thick fur; wolf: a
wild animal that lives in a pack; rabbit: a small animal with long ears; lake: a large body of
still water; river: water that flows to the sea; mountain: land that rises very high; forest: a
place where many trees grow; desert: a dry place where little rain falls; island: land with water
all around it; bridge: a way over a river; lighthouse: a tower whose light guides ships; castle: a
strong old house with thick walls; library: a place full of books; garden: a place where flowers
and vegetables grow; market: a place where people buy and sell; hammer: a tool to drive nails;
spoon: a tool to eat soup; key: a thing that opens a lock; clock: a thing that shows the time;
lamp: a thing that gives light; boat: a thing that carries people over water; kite: a toy that
flies in the wind; map: a drawing that shows where places are; compass: a needle that points north;
drum: a thing to beat music on; book: many pages with words or pictures on them; window: an opening
that lets in light; wheel: a round thing that turns; star: a sun that is very far away; planet: a
large ball that goes round a star; cloud: many tiny drops of water in the sky; storm: strong wind
with rain; rainbow: a bow of colours that sunlight makes in the rain; tree: a tall plant with a
trunk; flower: the bright part of a plant; seed: the small thing a plant grows from; friend:
someone who likes you and helps you; caravan: a group of people who travel together; baker: someone
who makes bread; doctor: someone who helps sick people; teacher: someone who helps others to learn;
sailor: someone who works on a ship; farmer: someone who grows food
"""

NAMED_MEANINGS = """
the moon: the ball of rock that goes round the earth; the sun: the star that gives us light and
warmth; the earth: the planet we live on; snow: frozen water that falls from the sky; ice: water
that has frozen; rain: water that falls from the clouds; bread: food that is baked from flour and
water; honey: sweet food that bees make; music: sound that is made to be beautiful; gold: a yellow
metal that is worth much; winter: the coldest season; summer: the warmest season; spring: the
season when plants begin to grow; autumn: the season when leaves fall
"""

HOW_MANY = """
days are in a week: seven days in a week; months are in a year: twelve months in a year; hours are
in a day: twenty-four hours in a day; minutes are in an hour: sixty minutes in an hour; seconds are
in a minute: sixty seconds in a minute; seasons are in a year: four seasons in a year; sides are in
a triangle: three sides in a triangle; sides are in a square: four sides in a square; fingers are
on a hand: five fingers on a hand; days are in a weekend: two days in a weekend; wheels are on a
bicycle: two wheels on a bicycle; wheels are on a car: four wheels on a car; letters are in the
alphabet: twenty-six letters in the alphabet; weeks are in a year: fifty-two weeks in a year; days
are in a year: three hundred and sixty-five days in a year; colours are in a rainbow: seven colours
in a rainbow; things are in a dozen: twelve things in a dozen; cents are in a dollar: one hundred
cents in a dollar; toes are on a foot: five toes on a foot; planets are near our sun: eight planets
near our sun
"""

DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"
MONTHS = "January February March April May June July August September October November December"

MIXES = """
blue and yellow: green; yellow and blue: green; red and yellow: orange; yellow and red: orange; red
and blue: purple; blue and red: purple; black and white: grey; white and black: grey; red and
white: pink; white and red: pink
"""

RHYMES = """
cat: hat; mouse: house; star: far; tree: bee; moon: spoon; light: night; sun: fun; day: play; sky:
high; boat: goat; king: ring; bear: chair; dog: log; snow: slow; sea: free; cake: lake; rain:
train; fox: box; bed: red; book: cook; ball: tall; well: bell; frog: fog; wing: sing; kite: white;
rose: nose; stone: alone; town: brown; hill: still; door: floor
"""

LISTS = """
the days of the week: Monday, Tuesday, Wednesday, Thursday, Friday, Saturday and Sunday; the months
of the year: January, February, March, April, May, June, July, August, September, October, November
and December; the four seasons: spring, summer, autumn and winter; the seasons: spring, summer,
autumn and winter; the colours of the rainbow: red, orange, yellow, green, blue, indigo and violet;
the planets: Mercury, Venus, Earth, Mars, Jupiter, Saturn, Uranus and Neptune; three animals: a
fox, an owl and a bear; three colours: red, green and blue; three fruits: an apple, a plum and a
cherry; the five senses: sight, hearing, smell, taste and touch; the directions: north, east, south
and west; three birds: an owl, a swan and a raven; three tools: a hammer, a saw and a spade; some
animals: a cat, a horse, a frog and a whale; three countries: France, Kenya and Japan; three
cities: Paris, Cairo and Lima
"""
