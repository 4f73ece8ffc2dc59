"""What a step said, as one number: by which a replay is compared with what was recorded."""

import json
from collections.abc import Sequence
from dataclasses import astuple
from typing import Any
from zlib import crc32

from labkit.core.messages import Answer, Command, Depart


def said(commands: Sequence[Command]) -> int:
    """A checksum of commands in order, the same on any machine; 0 when nothing was said.

    Prompts and outputs are left out: a trace file does not hold the latter.
    """
    if not commands:
        return 0
    return crc32(json.dumps([_plain(command) for command in commands]).encode()) or 1


def _plain(command: Command) -> list[Any]:
    kind = type(command).__name__
    if isinstance(command, Depart):
        ids = [row.id for row in command.rows]
        return [kind, command.batch_id, command.gpus, ids, *astuple(command.receipt)]
    if isinstance(command, Answer):
        return [kind, command.batch_id, [row.id for row in command.rows]]
    return [kind, *astuple(command)]
