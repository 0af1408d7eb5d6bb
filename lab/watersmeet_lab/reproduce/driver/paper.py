"""What the paper's tables say."""

from __future__ import annotations

from collections.abc import Mapping

from watersmeet.plan.model import Policy

FIXED: tuple[Policy, ...] = ("timestamp", "round_robin", "consumption_rate", "initial_output_size", "output_rate")
SHORT: Mapping[str, str] = {
    "timestamp": "timestamp",
    "round_robin": "round robin",
    "consumption_rate": "consumption rate",
    "initial_output_size": "initial output size",
    "output_rate": "output rate",
    "auto": "auto",
}
SPANS = ("0.1M", "1M")

TABLE_2: Mapping[str, tuple[tuple[float, float, float], int]] = {
    **dict.fromkeys(("I", "II", "III", "IV"), ((5e-9, 1e-6, 5e-6), 5_000_000)),
    **dict.fromkeys(("V", "VI"), ((1e-5, 1e-5, 1e-5), 1_000_000)),
}
"""Selectivities of S1 with S2, S1 with S3, S2 with S3; and |Mjoin|, which follows from every other line."""

TABLE_4: Mapping[str, Mapping[str, tuple[float | None, float | None]]] = {
    "I": {"round_robin": (0.985, 1.012), "initial_output_size": (0.854, 0.791), "output_rate": (0.903, 0.769)},
    "II": {"round_robin": (1.002, 1.002), "initial_output_size": (0.859, 0.773), "output_rate": (0.840, 0.777)},
    "III": {"round_robin": (1.003, 1.014), "initial_output_size": (0.871, 0.811), "output_rate": (0.884, 0.815)},
    "IV": {"round_robin": (0.966, 0.997), "initial_output_size": (0.744, 0.801), "output_rate": (0.755, 0.789)},
    "V": {
        "round_robin": (0.948, 0.927), "consumption_rate": (0.863, 0.808),
        "initial_output_size": (0.882, 0.5), "output_rate": (0.906, 0.851),
    },
    "VI": {
        "round_robin": (1.128, 0.926), "consumption_rate": (0.785, 0.728),
        "initial_output_size": (0.785, 0.611), "output_rate": (0.956, 0.819),
    },
    "average": {
        "round_robin": (1.005, 0.979), "consumption_rate": (0.824, 0.768),
        "initial_output_size": (0.832, 0.714), "output_rate": (0.874, 0.803),
    },
}  # fmt: skip
"""Running time over timestamp's, in batches of 0.1M and of 1M time units."""

TABLE_5: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "I": {
        "round_robin": (0.5, 0.4), "timestamp": (0.45, 0.45),
        "initial_output_size": (0.85, 0.85), "output_rate": (0.85, 0.85),
    },
    "II": {
        "round_robin": (0.45, 0.4), "timestamp": (0.5, 0.45),
        "initial_output_size": (0.85, 0.85), "output_rate": (0.85, 0.85),
    },
    "III": {
        "round_robin": (0.5, 0.45), "timestamp": (0.5, 0.45),
        "initial_output_size": (0.8, 0.8), "output_rate": (0.8, 0.8),
    },
    "IV": {
        "round_robin": (0.55, 0.5), "timestamp": (0.5, 0.45),
        "initial_output_size": (0.65, 0.6), "output_rate": (0.6, 0.6),
    },
    "V": {
        "round_robin": (0.85, 0.9), "timestamp": (0.5, 0.45), "consumption_rate": (0.1, 0.05),
        "initial_output_size": (0.95, 1.0), "output_rate": (0.9, 0.95),
    },
    "VI": {
        "round_robin": (0.65, 0.55), "timestamp": (0.5, 0.45), "consumption_rate": (0.4, 0.35),
        "initial_output_size": (0.8, 0.95), "output_rate": (0.7, 0.7),
    },
    "average": {
        "round_robin": (0.58, 0.53), "timestamp": (0.49, 0.45), "consumption_rate": (0.25, 0.2),
        "initial_output_size": (0.82, 0.84), "output_rate": (0.78, 0.79),
    },
}  # fmt: skip
"""The share of results produced at half of timestamp's time, in batches of 0.1M and of 1M time units."""
