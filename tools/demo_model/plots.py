"""The plots of the stories, as text.

A step's wordings stand on lines of their own, a blank line ends a step, and a line of dashes ends a
plot. A lone `-` is the empty wording: the step is left out.
"""

from __future__ import annotations

Plot = tuple[tuple[str, ...], ...]


def lines(text: str) -> tuple[str, ...]:
    """The lines of a text block; a lone `-` is an empty one."""
    return tuple("" if line == "-" else line for line in text.strip().splitlines())


def _plots(text: str) -> tuple[Plot, ...]:
    plots = (plot.strip().split("\n\n") for plot in text.split("---"))
    return tuple(tuple(lines(step) for step in plot) for plot in plots)


WITH_THING = _plots("""
One morning {name} found {a_thing} near {ground}.
One day {name} came upon {a_thing} that nobody owned.

{Friend_intro} came by and asked to see it.
Just then {friend_intro} came along the path.

At first {name} wanted to keep the {thing} for {themself}.
{name} held the {thing} tight and did not want to share it.

But {fname} looked so sad that {they} changed {their} mind.
But then {they} saw how sad {fname} was, and {they} gave it over.

Together they tried the {thing}, and {power}.
They shared the {thing}, and {power}.

Since that day, {name} and {fname} have shared everything.
From then on the two friends shared all they had.

---

{name} had {a_thing} that {they} loved more than anything.
The thing {they} loved best was {a_thing}.

One windy day the {thing} was gone.
One evening {they} looked for the {thing}, and it was gone.

{name} searched high and low, but {they} could not find it.
{They} looked behind every stone, but found nothing.

Then {friend_intro} offered to help.
"I will help you," said {friend_intro}.

They looked together until the sun went down, and there it was, close to {ground}!
At last {fname} saw the {thing} shine near {ground}.

{name} was so happy that {they} danced, and {power}.
{name} laughed with joy, and that night {power}.

{They} never forgot how {fname} had helped.
"A friend is worth more than any {thing}," said {name}.

---

{name} wished for {a_thing}, but {they} had no money to buy one.
More than anything, {name} wanted {a_thing}.

So {they} worked hard every day and helped all the neighbours.
So {they} helped {friend_intro} with the work, day after day.

When winter came, the neighbours brought a gift.
One morning there was a parcel at the door.

Inside was the most beautiful {thing}, and {power}.
In it lay the {thing}, and {power}.

"Kindness always comes back," said {name} with a smile.
{name} smiled and shared it with everyone.
""")

PLAIN = _plots("""
{view}
-

One night a great storm came, and the rain did not stop.
One evening the sky grew dark and a storm began.

{Friend_intro} knocked at the door, wet and cold.
Out in the rain stood {friend_intro}, shaking with cold.

{name} was a little afraid, but {they} opened the door wide.
"Come in," said {name}, "there is room for two."

They drank hot soup and told each other stories all night.
They sat by the fire until the wind was tired.

In the morning there was a rainbow, and the two were friends.
When the sun came back, {fname} stayed, and neither was alone again.

---

{view}
-

{name} was afraid of the dark and never went out at night.
Everyone knew that {name} was afraid of the dark.

One night {they} heard a voice that cried for help.
Then one night someone called for help.

It was {friend_intro}, who had lost the way.
It was {friend_intro}, alone and lost.

{name} took a deep breath and went out into the night.
{name} was scared, but {they} ran out all the same.

Step by step {they} followed the voice until {they} found {fname}.
{They} found {fname} near {ground} and led {fthem} home.

After that, the dark did not seem so dark to {name}.
"You are brave," said {fname}, and {name} was never afraid again.

---

{view}
-

{name} had no one to play with and often felt alone.
All day long {name} played alone.

One day {they} met {friend_intro}.
One sunny morning {friend_intro} came to {ground}.

"Do you want to play?" asked {fname}.
"May I play with you?" asked {fname} in a small voice.

They ran, they hid, and they laughed until the sun went down.
They played all day and forgot to go home.

Now {name} was not alone any more.
From that day on, they met every morning.

---

{view}
-

One day {name} and {friend_intro} ran a race to {ground}.
One day {friend_intro} said to {name}, "Let us run a race!"

{fname} was faster and was soon far ahead.
{fname} ran like the wind, and {name} was left behind.

But then {fname} fell and hurt a foot.
But half way {fname} tripped over a root and could not get up.

{name} could have won, but {they} stopped to help.
{name} did not run past, but helped {fthem} to stand.

They crossed the line together, and both of them won.
Slowly they walked to the end, side by side, and everyone cheered.

---

{view}
-

In spring {name} put a tiny seed into the ground.
One day {name} planted a seed near {ground}.

"Nothing will grow there," said {friend_intro}.
{Friend_intro} laughed and said it was too small to grow.

But {name} gave it water every day and waited.
{name} only smiled and watered it each morning.

In summer there was a tall plant full of sweet berries.
Weeks went by, and it grew as high as a house.

{name} shared the berries with everyone, and even {fname} said sorry.
"I was wrong," said {fname}, and they ate the first berries together.

---

{view}
-

One day {name} walked too far and could not find the way home.
One foggy morning {name} got lost.

{They} sat down and began to cry.
Every path looked the same, and {they} was very tired.

{Friend_intro} heard it and sat down beside {them}.
Then {friend_intro} came out of the fog.

"Look for the brightest star," said {fname}, "it stands above {ground}."
"I know the way," said {fname}. "Follow me to {ground}."

They walked through the night and sang to stay awake.
Hand in hand they went, up and down, until the morning.

At home {name} made pancakes for {fname}, and they ate every one.
When they came home, {name} said thank you a hundred times.
""")
