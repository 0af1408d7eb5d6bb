"""A small auction house: events in the format of Nexmark's generator, from a seed.

Unlike the generator's they are few and slow (50 events are a second), so that there are several windows of ten seconds, and prices are
of a few values, so that bids tie: by price, by price and time.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

BASE_MS = 1_700_000_003_000
EVENTS = 3_000


def print_events(path: Path, seed: int = 1) -> None:
    """Write all events, a line of JSON for each."""
    path.write_text("".join(json.dumps(event) + "\n" for event in events(seed)))


def events(seed: int) -> list[dict[str, Any]]:
    """One person, three auctions and 46 bids of fifty; five events at a time."""
    rng = random.Random(seed)
    out, people, auctions = [], 0, 0
    for number in range(EVENTS):
        event: dict[str, Any] = {"date_time": BASE_MS + number // 5 * 100, "extra": f"{rng.random():.3f} {number}"}
        if number % 50 == 0:
            kind, people = "Person", people + 1
            event |= {"id": 1000 + people, "name": f"name {people % 7}", "email_address": "x@y", "credit_card": "1 2"}
            event |= {"city": rng.choice(["bend", "kent"]), "state": rng.choice(["or", "id", "ca", "wa"])}
        elif number % 50 < 4:
            kind, auctions = "Auction", auctions + 1
            event |= {"id": 1000 + auctions, "item_name": f"item {auctions}", "description": "", "initial_bid": 1}
            event |= {"reserve": 2, "expires": event["date_time"] + rng.randrange(1, 1000)}
            event |= {"seller": 1000 + rng.randint(max(1, people - 12), people + 2), "category": rng.randint(10, 12)}
        else:
            kind = "Bid"
            event |= {"auction": 1000 + rng.randint(max(1, auctions - 3), auctions + 1), "price": rng.randint(1, 9)}
            event |= {"bidder": 1000 + rng.randint(max(1, people - 20), people + 2), "channel": "c", "url": "u"}
        out.append({kind: event})
    return out
