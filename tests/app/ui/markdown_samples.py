"""Texts for the tests of the Markdown view and for its bench."""

EVERYTHING = """\
A pinned page is registered with the driver (`cudaHostRegister`), so the GPU **reads** it *over* PCIe. ~~Never~~ mind
a soft break, a [link](https://example.org/a "t"), an <https://example.org/auto> and ![a cat](https://example.org/c.png).

# One
## Two

1. The KV cache takes what you asked for.
2. Whole layers fill the rest of **VRAM**.
   - nested `code`
     - third

   a second paragraph
3. ```bash
   python run.py
   ```

```python
def split(total: int) -> int:
    return total // 2  # half 🙂
```

| Tier | Layers | Read by |
|---|--:|:-:|
| VRAM | 8 | **GPU** |
| Locked | 4 | `CPU` |

After the table.

> A quote
> - with a list
>
> > and a quote

    indented code

***

Setext heading
---

```
no language, never closed
"""

_PARAGRAPH = (
    "Whole expert layers fill the rest of **VRAM**; the others are `pinned` or *locked*, as the quota allows. " * 3
)
_SECTION = f"""
## Section

{_PARAGRAPH}

- first point with some words
- second point with `code` and **weight**

```python
def plan(layers: int, quota: int, layer_bytes: int) -> tuple[int, int]:
    pinned = min(layers, quota // layer_bytes)  # whole layers
    return pinned, layers - pinned
```

| Tier | Layers |
|---|--:|
| VRAM | 8 |
| Pinned | 50 |

"""


def long_answer(characters: int) -> str:
    """Markdown of every kind, about this long."""
    return (_SECTION * (characters // len(_SECTION) + 1))[:characters]
