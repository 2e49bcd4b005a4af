"""Texts that people, or attackers, may give as a schedule: right ones, nearly right ones, and none at all."""

import random
import zoneinfo
from datetime import UTC, datetime, timedelta

_FIELDS = [(0, 59, ""), (0, 59, ""), (0, 23, ""), (1, 31, ""), (1, 12, "JAN FEB MAY dec"), (0, 7, "SUN MON FRI sat")]
_ODD = [
    "\0",
    "\n",
    "\u00a0",
    "\u017f",
    "\u0661",
    "\U0001f40d",
    "\ud800",
    "-",
    "/",
    ",",
    "*",
    "#",
    "L",
    "W",
    "?",
    "H",
    "@",
    "%",
    "9",
]
_RARE_DAYS = [
    *("29 2 MON#5", "*,29 2 MON#5", "* 2 MON#5", "29 2 *", "*/29 2 5L", "*/31 2,4,6,9,11 *", "30 2 *", "31 4 *"),
    *("30,31 2 *", "31 2 0", "*/30,28W 2 */7,SUN#5", "LW 2 */7,SUN#5", "L 2 */7,SAT#5", "1W 1 */7,SUN"),
]
_FORMS = [
    *("@daily", "@yearly", "@reboot", "@Weekly", "@", "", " ", "* * * * *", "R * * * *", "H H * * *"),
    *("0 0 0 0 0", "* * * * * * *", "٣ * * * *", "1e3 * * * *", "+5 * * * *", "0 0 ? * MONDAY", "* * * JANUARY *"),
]


class Texts:
    """Draws schedules, the same ones for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._zones = sorted(zoneinfo.available_timezones())

    def draw(self) -> str:
        draw = self._random.choices(
            [self._draw_right, self._draw_spoilt, self._draw_rare, self._draw_long, self._draw_noise, self._draw_form],
            [8, 5, 3, 2, 1, 1],
        )[0]
        return draw()

    def draw_zone(self) -> str:
        """Mostly one that there is."""
        zone = self._random.choice(self._zones)
        if self._random.random() < 0.1:
            at = self._random.randrange(len(zone))
            return zone[:at] + self._random.choice(_ODD) + zone[at + 1 :]
        return zone

    def draw_instant(self) -> datetime:
        """Mostly of our days, else anywhere, or near an end of the calendar or a century without a leap day."""
        years = self._random.choices([(2020, 2040), (1, 9999), (1, 2), (9995, 9999), (2096, 2104)], [6, 2, 1, 1, 1])[0]
        year = self._random.randint(*years)
        second = timedelta(
            seconds=self._random.randrange(364 * 86400), microseconds=self._random.choice([0, 0, 1, 999999])
        )
        return datetime(year, 1, 1, tzinfo=UTC) + second

    def _draw_right(self) -> str:
        fields = [self._draw_field(n) for n in range(self._random.choice([0, 1]), 6)]
        return self._random.choice([" ", " ", "\t", "  "]).join(fields)

    def _draw_field(self, n: int) -> str:
        low, high, names = _FIELDS[n]
        if self._random.random() < 0.35:
            return "*"
        return ",".join(self._draw_item(low, high, names.split()) for _ in range(self._random.choice([1, 1, 1, 2, 5])))

    def _draw_item(self, low: int, high: int, names: list[str]) -> str:
        r = self._random
        a, b = (r.choice(names) if names and r.random() < 0.3 else str(r.randint(low, high)) for _ in range(2))
        step = f"/{r.randint(1, high)}" if r.random() < 0.3 else ""
        special = {31: ["L", "LW", f"{r.randint(1, 28)}W"], 7: [f"{a}L", f"{a}#{r.randint(1, 5)}"]}.get(high, [])
        return r.choice([a, f"{a}-{b}{step}", f"*{step}", f"{a}{step}", *special])

    def _draw_spoilt(self) -> str:
        text = list(self._draw_right())
        for _ in range(self._random.randint(1, 4)):
            at = self._random.randrange(len(text) + 1)
            text[at : at + self._random.choice([0, 1, 2])] = self._random.choice([*_ODD, *text])
        return "".join(text)

    def _draw_rare(self) -> str:
        return f"{self._random.choice(['0 0', '* *', '59 59 23', '*/7 2'])} {self._random.choice(_RARE_DAYS)}"

    def _draw_long(self) -> str:
        """Long lists up to the longest text that is read; or far longer."""
        if self._random.random() < 0.3:
            piece = self._random.choice(["1,", "* ", "a", "1-2/3,", "MON#1,", " ", "9", "é"])
            return piece * (self._random.choice([256, 1000, 10_000]) // len(piece))
        days = [f"{n}W" for n in range(1, 29)]
        weekdays = [f"{d}#{n}" for d in range(7) for n in range(1, 6)] + [f"{d}L" for d in range(7)]
        self._random.shuffle(days)
        self._random.shuffle(weekdays)
        month_days = ",".join([self._random.choice(["*/30", "31", "1"]), *days[: self._random.randint(1, 28)]])
        text = f"{self._random.choice(['0', '*'])} 0 {month_days} {self._random.choice(['2', '*', '2,4'])} */7"
        for each in weekdays:
            if len(text) + len(each) < 256:
                text += f",{each}"
        return text

    def _draw_noise(self) -> str:
        high = self._random.choice([128, 0x250, 0x11000])
        return "".join(chr(self._random.randrange(high)) for _ in range(self._random.choice([1, 9, 60, 256])))

    def _draw_form(self) -> str:
        return self._random.choice(_FORMS)
