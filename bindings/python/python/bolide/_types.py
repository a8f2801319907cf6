"""Types of arguments."""

from typing import Any, Mapping, Union

from bolide._bolide import Filter

#: A primary key: ``str`` or ``int`` in a collection of typed keys, otherwise ``bytes`` or ``str``. Bytes that are no encoded
#: ``str`` or ``int``, as other programs may write them, are a key of any collection.
Key = Union[str, int, bytes]
#: A record: a ``dict`` or another mapping, or bytes or text as they are stored.
Record = Union[Mapping[str, Any], bytes, bytearray, str]
#: A filter, its text, or none.
Condition = Union[Filter, str, None]
