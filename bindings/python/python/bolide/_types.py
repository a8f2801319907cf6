"""Types of arguments."""

from typing import Any, Mapping, Union

from bolide._bolide import Filter

#: A primary key: ``str``, ``int`` or ``bytes`` in a collection of typed keys, otherwise ``bytes`` or ``str``.
Key = Union[str, int, bytes]
#: A record: a ``dict`` or another mapping, or bytes or text as they are stored.
Record = Union[Mapping[str, Any], bytes, bytearray, str]
#: A filter, its text, or none.
Condition = Union[Filter, str, None]
