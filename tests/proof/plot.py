"""Lines over time as SVG, one small chart for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_WIDTH, _HEIGHT, _GAP = 360, 150, 24
_STYLE = "text{font:12px sans-serif;fill:#333}polyline{fill:none;stroke:#1f6f8b;stroke-width:2}line{stroke:#bbb}"


def draw_lines(lines: Mapping[str, Sequence[float]], unit: str) -> str:
    """Draw each line in a chart of its own from zero, with its last and its largest value; `unit` is one step to the right."""
    charts = [
        f'<g transform="translate({_GAP + (number % 2) * (_WIDTH + 2 * _GAP)},{_GAP + (number // 2) * (_HEIGHT + 3 * _GAP)})">'
        f"{_draw(name, values, unit)}</g>"
        for number, (name, values) in enumerate(lines.items())
    ]
    width, height = 2 * (_WIDTH + 2 * _GAP), (len(charts) + 1) // 2 * (_HEIGHT + 3 * _GAP)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{", ".join(lines)}">'
        f'<style>{_STYLE}</style><rect width="{width}" height="{height}" fill="#fff"/>{"".join(charts)}</svg>\n'
    )


def _draw(name: str, values: Sequence[float], unit: str) -> str:
    top = max(*values, 1.0) * 1.1
    step = _WIDTH / max(len(values) - 1, 1)
    points = " ".join(f"{place * step:.1f},{_HEIGHT - value / top * _HEIGHT:.1f}" for place, value in enumerate(values))
    return (
        f'<text y="-6">{name}: most {max(values):,.1f}, last {values[-1]:,.1f}</text>'
        f'<line y1="{_HEIGHT}" x2="{_WIDTH}" y2="{_HEIGHT}"/><line y2="{_HEIGHT}"/><polyline points="{points}"/>'
        f'<text y="{_HEIGHT + 16}">{unit} 1</text><text x="{_WIDTH}" y="{_HEIGHT + 16}" text-anchor="end">{len(values)}</text>'
    )
