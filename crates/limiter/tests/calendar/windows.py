#!/usr/bin/env python3
"""Writes windows.tsv: windows of 200 and more time zones, found with Python's zoneinfo.

Usage: python3 windows.py > windows.tsv

The search only asks zoneinfo for the local time of instants. It knows nothing of offsets, of rules
or of the changes of the clocks. Every zone is a name of the IANA database with the POSIX rule at the
end of its file. A zone is left out if its local times differ from the rule between 2024 and 2060.

A line `zone NAME RULE` begins a zone. The other lines are windows of the zone: the period, the first
second and the length, the numbers in base 36. Periods are d for days, w0 to w6 for weeks from Monday
to Sunday, m1 to m31 for months by their first day, and y1.1 to y12.31 for years.
"""

import calendar
import io
import random
import struct
import sys
import zoneinfo
from datetime import date, datetime, timedelta, timezone
from pathlib import Path

FIRST, LAST = datetime(2024, 1, 2), datetime(2060, 12, 30)
WINDOWS = 10_000
EPOCH = datetime(1970, 1, 1)
random.seed(33)


def seconds(utc):
    return int((utc - EPOCH).total_seconds())


def local(zone, instant):
    """The local time of an instant, without its zone."""
    return datetime.fromtimestamp(instant, zone).replace(tzinfo=None)


def rule_of(name):
    data = next(Path(root, name) for root in zoneinfo.TZPATH if Path(root, name).exists()).read_bytes()
    return data.rstrip(b"\n").rsplit(b"\n", 1)[1].decode() if data.startswith(b"TZif") else ""


def zone_of(rule):
    """A zone that has only a rule and no recorded changes."""
    header = b"TZif2" + b"\0" * 15 + struct.pack(">6I", 0, 0, 0, 0, 1, 4)
    body = struct.pack(">iBB", 0, 0, 0) + b"UTC\0"
    return zoneinfo.ZoneInfo.from_file(io.BytesIO((header + body) * 2 + b"\n" + rule.encode() + b"\n"))


def follows(zone, rule):
    by_rule = zone_of(rule)
    every = range(seconds(FIRST), seconds(LAST), 6 * 3_600 - 900)
    return all(local(zone, at) == local(by_rule, at) for at in every)


def begin(zone, day):
    """The first instant at which clocks show midnight of a day, or later."""
    midnight = datetime(day.year, day.month, day.day)
    at = seconds(midnight) - 40 * 3_600
    while local(zone, at) < midnight:
        at += 900
    # All changes are on whole quarters of an hour, but the search does not rely on it.
    early = at - 900
    while at - early > 1:
        middle = (early + at) // 2
        if local(zone, middle) < midnight:
            early = middle
        else:
            at = middle
    return at


def of_month(year, month, day):
    return date(year, month, min(day, calendar.monthrange(year, month)[1]))


def first_days(period, around):
    """First days of the periods before and after a day."""
    if period == "d":
        return [around + timedelta(days) for days in range(-3, 4)]
    if period[0] == "w":
        days = [around + timedelta(days) for days in range(-17, 18)]
        return [day for day in days if day.weekday() == int(period[1:])]
    if period[0] == "m":
        months = [around.year * 12 + around.month - 1 + more for more in range(-3, 4)]
        return [of_month(month // 12, month % 12 + 1, int(period[1:])) for month in months]
    month, day = map(int, period[1:].split("."))
    return [of_month(around.year + more, month, day) for more in range(-2, 3)]


def window(zone, period, instant):
    begins = sorted(begin(zone, day) for day in first_days(period, local(zone, instant).date()))
    return max(at for at in begins if at <= instant), min(at for at in begins if at > instant)


def changes(zone):
    """Instants near the changes of a zone's clocks in a few years."""
    near = []
    for year in (2024, 2025, 2028, 2037, 2038, 2059):
        at = seconds(datetime(year, 1, 2))
        while at < seconds(datetime(year, 12, 30)):
            if zone.utcoffset(datetime.fromtimestamp(at, zone)) != zone.utcoffset(datetime.fromtimestamp(at + 86_400, zone)):
                near.append(at)
            at += 86_400
    return near


def a_period():
    kind = random.choice("dwmmyy")
    if kind == "w":
        return f"w{random.randrange(7)}"
    if kind == "m":
        return f"m{random.choice([1, 1, 15, 29, 30, 31, random.randint(1, 31)])}"
    if kind == "y":
        day = random.choice([(1, 1), (4, 6), (2, 29), (10, 1), (random.randint(1, 12), random.randint(1, 31))])
        return f"y{day[0]}.{day[1]}"
    return "d"


def base36(number):
    digits = ""
    while number or not digits:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits


def main():
    zones = []
    for name in sorted(zoneinfo.available_timezones()):
        is_alias = name.split("/")[0] in {"Etc", "SystemV", "US", "Brazil", "Canada", "Chile", "Mexico"}
        if "/" not in name or is_alias:
            continue
        zone, rule = zoneinfo.ZoneInfo(name), rule_of(name)
        if rule and follows(zone, rule):
            zones.append((name, rule, zone))
    # Half of the zones with one time all year are enough.
    zones = [one for at, one in enumerate(zones) if "," in one[1] or at % 2]
    print(len(zones), "zones,", len({rule for _, rule, _ in zones}), "rules", file=sys.stderr)
    each, more = divmod(WINDOWS, len(zones))
    for at, (name, rule, zone) in enumerate(zones):
        print("zone", name, rule)
        near = changes(zone)
        found = set()
        while len(found) < each + (at < more):
            if near and random.random() < 0.6:
                instant, period = random.choice(near) + random.randint(0, 86_400), random.choice(["d", a_period()])
            else:
                instant, period = random.randint(seconds(FIRST), seconds(LAST)), a_period()
            start, end = window(zone, period, instant)
            found.add((period, start, end - start))
        for period, start, length in sorted(found):
            print(period, base36(start), base36(length))


main()
