"""Checks of numbers that users give."""
import operator

INT64_MAX = 2**63 - 1
UINT32_MAX = 2**32 - 1


def check_number(name: str, value: int, least: int, most: int = INT64_MAX) -> int:
    if not least <= operator.index(value) <= most:
        raise ValueError(f"invalid {name} {value}: expected {least} to {most}")
    return operator.index(value)
