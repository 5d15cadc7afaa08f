#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws a topology as SVG, one panel per round. Ranks stand on a circle, those of a host on one band. A group is a shape around its
members, an edge a line as thick as its weight, with a head where nothing comes back. Ranks that are idle in a round are grey.

    tacit info topologies aer -n 16 --per-host 4 --json | scripts/draw_topology.py >aer.svg
"""
import json
import math
import sys

PANELS_MAX, COLUMNS, PANEL, RADIUS, HEAD, NUMBERED_MAX = 8, 4, 296, 92, 78, 40
INSIDE, ACROSS, BAND, INK, FAINT = "#2a7f62", "#d1600a", "#e4e8ee", "#1f2933", "#66717f"


class Circle:
    """Where ranks stand: clockwise from the top, host by host in the order of places, with a gap between hosts."""

    def __init__(self, topology):
        self.ranks, self.per_host = topology["ranks"], topology["per_host"]
        self.hosts = (self.ranks - 1) // self.per_host + 1
        self.order = sorted(range(self.ranks), key=lambda rank: (self.host_of(rank), topology["position"][rank]))
        self.of_host = [self.order[at:at + self.per_host] for at in range(0, self.ranks, self.per_host)]
        gap = self.hosts > 1
        angle = 2 * math.pi / (self.ranks + gap * self.hosts)
        self.angles = {rank: angle * (i + gap * self.host_of(rank)) for i, rank in enumerate(self.order)}
        self.dot = 10 if self.ranks <= 12 else 9 if self.ranks <= 20 else 7 if self.ranks <= NUMBERED_MAX else 3

    def host_of(self, rank):
        return rank // self.per_host

    def point(self, rank, radius=RADIUS):
        return radius * math.sin(self.angles[rank]), -radius * math.cos(self.angles[rank])

    def path(self, ranks, fill="none", end="", **attributes):
        """A path along ranks in the order in which they stand: as a shape it is then convex."""
        points = ["%.1f %.1f" % self.point(rank) for rank in sorted(ranks, key=self.angles.get)]
        return element("path", d="M" + "L".join(points[:1] + points) + end, fill=fill, stroke_linejoin="round", stroke_linecap="round", **attributes)


def element(name, text="", **attributes):
    return "<%s %s>%s</%s>" % (name, " ".join('%s="%s"' % (key.replace("_", "-"), value) for key, value in attributes.items()), text, name)


def label(text, x, y, size, fill=INK, **attributes):
    return element("text", text, x="%.1f" % x, y="%.1f" % y, font_size=size, fill=fill, **attributes)


def draw_host(circle, host):
    ranks = circle.of_host[host]
    middle = (circle.angles[ranks[0]] + circle.angles[ranks[-1]]) / 2
    side, radius = math.sin(middle), RADIUS + circle.dot + 10
    anchor = "start" if side > 0.2 else "end" if side < -0.2 else "middle"
    yield circle.path(ranks, stroke=BAND, stroke_width=2 * circle.dot + 8)
    if circle.hosts <= 16:
        yield label("host %d" % host, radius * side, -radius * math.cos(middle), 10, FAINT, text_anchor=anchor, dy="0.35em")


def draw_line(circle, pair, width, **attributes):
    """Bent towards the centre, so that it runs over no third rank."""
    (x, y), (u, v) = map(circle.point, pair)
    colour = INSIDE if len(set(map(circle.host_of, pair))) == 1 else ACROSS
    return element("path", d="M%.1f %.1fQ%.1f %.1f %.1f %.1f" % (x, y, 0.31 * (x + u), 0.31 * (y + v), u, v), fill="none", stroke=colour,
                   stroke_width="%.1f" % width, **attributes)


def draw_group(circle, members):
    if len(members) == 2:
        return draw_line(circle, members, circle.dot / 2.5)
    if len(set(map(circle.host_of, members))) == 1 and circle.hosts > 1:
        return circle.path(members, stroke=INSIDE, stroke_opacity=0.55, stroke_width=2 * circle.dot + 5)
    colour = ACROSS if circle.hosts > 1 else INSIDE
    return circle.path(members, colour, "Z", fill_opacity=0.2, stroke=colour, stroke_width=circle.dot / 2.5)


def draw_edges(circle, edges):
    weights = {(edge["from"], edge["to"]): edge["weight"] for edge in edges}
    for (sender, receiver), weight in weights.items():
        if (receiver, sender) not in weights:
            yield draw_line(circle, (sender, receiver), 0.6 + 4 * weight, marker_end="url(#head)")
        elif sender < receiver:
            yield draw_line(circle, (sender, receiver), 0.6 + 4 * weight)


def draw_rank(circle, rank, busy):
    x, y = circle.point(rank)
    colour = INK if busy else "#9aa5b1"
    yield element("circle", cx="%.1f" % x, cy="%.1f" % y, r=circle.dot, fill="#ffffff" if busy else BAND, stroke=colour)
    if circle.ranks <= NUMBERED_MAX:
        yield label(rank, x, y, circle.dot + 1, colour, text_anchor="middle", dy="0.35em")


def draw_round(circle, number, content):
    groups, edges = content.get("groups", []), content.get("edges", [])
    busy = {rank for group in groups for rank in group} | {edge[end] for edge in edges for end in ("from", "to")}
    yield label("round %d, %.3g on the busiest link" % (number, content["nic"]), 0, 2 - PANEL / 2, 13, text_anchor="middle")
    for host in range(circle.hosts if circle.hosts > 1 else 0):
        yield from draw_host(circle, host)
    yield from (draw_group(circle, group) for group in groups)
    yield from draw_edges(circle, edges)
    for rank in range(circle.ranks):
        yield from draw_rank(circle, rank, rank in busy)


def count(number, noun):
    return "%d %s%s" % (number, noun, "" if number == 1 else "s")


def read_topology():
    if len(sys.argv) > 1 or sys.stdin.isatty():
        sys.exit(__doc__)
    try:
        topology = json.load(sys.stdin)
        return topology, Circle(topology), topology["rounds"][:PANELS_MAX]
    except (ValueError, KeyError, TypeError):
        sys.exit("draw_topology.py: standard input is not the JSON of one topology: tacit info topologies aer -n 16 --json")


def main():
    topology, circle, rounds = read_topology()
    width, height = PANEL * max(3, min(COLUMNS, len(rounds))), HEAD + (PANEL + 24) * -(-len(rounds) // COLUMNS)
    print('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif">' % (width, height))
    print('<marker id="head" markerUnits="userSpaceOnUse" markerWidth="30" markerHeight="8" refX="%d" refY="4" orient="auto">'
          '<path d="M0 0L8 4L0 8Z" fill="%s"/></marker>' % (10 + circle.dot, INK))
    print(element("rect", width=width, height=height, fill="#ffffff"))
    print(label("%s, %s on %s" % (topology["name"], count(circle.ranks, "rank"), count(circle.hosts, "host")), 20, 32, 20, font_weight="bold"))
    print(label("%s%s; model sizes on the busiest host's link, per mix and direction: %.3g on average. Green: inside a host, orange: across"
                % (count(topology["period"], "round"), ", of which %d are drawn" % PANELS_MAX if topology["period"] > PANELS_MAX else "", topology["nic_mean"]),
                20, 54, 13, FAINT))
    for number, content in enumerate(rounds):
        place = "translate(%d %d)" % (PANEL * (number % COLUMNS + 0.5), HEAD + PANEL / 2 + 20 + (PANEL + 24) * (number // COLUMNS))
        print(element("g", "\n".join(draw_round(circle, number, content)), transform=place))
    print("</svg>")


main()
