#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Strangers for tests/strangers.sh.
strangers.py record TAPE -- COMMAND...        runs COMMAND and writes what callers said on connections of loopback (root)
strangers.py besiege WORDS GATE REACH TAPE... knocks at all sockets on which processes listen that have WORDS in their
                                              command line, until SIGTERM; makes the file GATE after a round. REACH
                                              "outside": without what only a key keeps out, talk with the meeting place
                                              and hellos of ranks that are on their way; else "all"."""
import collections, glob, json, os, random, signal, socket, struct, subprocess, sys, threading, time

BYTES_MAX, FLOWS_MAX, CROWD, HOLD_S = 1 << 16, 4, 200, 3


class Recorder(threading.Thread):
    """Collects what callers say on TCP connections of loopback: from the first byte, in order."""

    def __init__(self):
        super().__init__(daemon=True)
        self.flows, self.begins, self.stopped = collections.OrderedDict(), {}, False
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.socket.bind(("lo", 0))
        self.socket.settimeout(0.2)

    def take(self, packet):
        ip = packet[14:]
        if len(ip) < 40 or ip[0] >> 4 != 4 or ip[9] != 6:
            return
        tcp = ip[(ip[0] & 15) * 4:struct.unpack("!H", ip[2:4])[0]]
        key, (number,) = ip[12:20] + tcp[:4], struct.unpack("!I", tcp[4:8])
        if tcp[13] & 0x12 == 2:  # SYN of the caller
            self.begins[key], self.flows[key] = number + 1, b""
        at = (number - self.begins.get(key, 0)) % (1 << 32)
        said = tcp[(tcp[12] >> 4) * 4:]
        if said and key in self.flows and at == len(self.flows[key]) < BYTES_MAX:
            self.flows[key] += said

    def run(self):
        while not self.stopped:
            try:
                packet, source = self.socket.recvfrom(1 << 17)
            except TimeoutError:
                continue
            if source[2] != socket.PACKET_OUTGOING:
                self.take(packet)

    def spoken(self):
        """The longest of each protocol: ranks try often before the others are there."""
        flows = sorted(list(self.flows.values()), key=len, reverse=True)
        return [said for begin in (b"\xb5tacith", b"\xb5tB") for said in [f for f in flows if f.startswith(begin)][:FLOWS_MAX]]


def record(tape, command):
    recorder = Recorder()
    recorder.start()
    code = subprocess.run(command).returncode
    time.sleep(0.5)
    recorder.stopped = True
    flows = recorder.spoken()
    with open(tape, "w") as file:
        json.dump([said.decode("latin-1") for said in flows], file)
    print(f"{len(flows)} connections recorded")
    return code or not flows


# ---- doors -----------------------------------------------------------------------------------------------------------
def sockets_of(words):
    found = set()
    for folder in glob.glob("/proc/[0-9]*"):
        try:
            line = open(folder + "/cmdline", "rb").read().replace(b"\0", b" ").decode(errors="replace")
            if words not in line or "strangers.py" in line:
                continue
            found |= {os.readlink(file) for file in glob.glob(folder + "/fd/*")}
        except OSError:
            pass
    return {text[8:-1] for text in found if text.startswith("socket:[")}


def doors(words):
    mine, out = sockets_of(words), []
    for line in open("/proc/net/tcp").readlines()[1:]:
        _, local, _, state, *rest = line.split()
        if state == "0A" and rest[5] in mine:
            out.append((socket.AF_INET, ("127.0.0.1", int(local.split(":")[1], 16))))
    for line in open("/proc/net/unix").readlines()[1:]:
        words_of_line = line.split()
        if len(words_of_line) == 8 and words_of_line[3] == "00010000" and words_of_line[6] in mine:
            out.append((socket.AF_UNIX, "\0" + words_of_line[7][1:]))
    return out


def call(door):
    family, address = door
    s = socket.socket(family, socket.SOCK_STREAM)
    s.settimeout(1)
    try:
        s.connect(address)
    except OSError:
        s.close()
        return None
    return s


def say(door, words):
    """Says the words and waits a moment for an answer."""
    s = call(door)
    if s is None:
        return False
    try:
        s.sendall(words)
        s.settimeout(0.1)
        s.recv(1 << 16)
    except OSError:
        pass
    s.close()
    return True


def knock(door, reach, tapes, rng, visits, held):
    words = {"http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "noise": rng.randbytes(5000),
             "tls": bytes.fromhex("16030100b0010000ac0303") + rng.randbytes(170)}
    for kind, text in words.items():
        visits[kind] += say(door, text)
    for half in b"\xb5tacith\2" + rng.randbytes(20), b"\xb5tBS\1":
        s = call(door)
        if s is not None:
            held.append((time.monotonic() + HOLD_S, s))
            visits["half a hello"] += 1
            try:
                s.sendall(half)
            except OSError:
                pass
    for name, flows in tapes:
        for flow in flows:
            if reach == "all" or not flow.startswith(b"\xb5tB"):
                visits[name] += say(door, flow)


def crowd(door, visits, held):
    for _ in range(CROWD):
        s = call(door)
        if s is not None:
            held.append((time.monotonic() + HOLD_S, s))
            visits["crowd"] += 1


def let_go(held, everything=False):
    while held and (everything or held[0][0] < time.monotonic()):
        held.pop(0)[1].close()


def besiege(words, gate, reach, tapes):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    rng, visits, held, rounds, closed = random.Random(1), collections.Counter(), [], 0, 0
    tapes = [(os.path.basename(tape), [flow.encode("latin-1") for flow in json.load(open(tape))]) for tape in tapes]
    live = Recorder() if os.geteuid() == 0 else None
    known, quiet, own = set(), 0, []
    if live:
        live.start()
    try:
        while True:
            found = doors(words)
            quiet = quiet + 1 if found and set(found) == known else 0
            known = set(found)
            closed += not found and os.path.exists(gate)
            if not os.path.exists(gate) and quiet < 5:  # until all that will listen for now does
                time.sleep(0.2)
                continue
            for door in found:
                if rounds == 0:
                    crowd(door, visits, held)
                if live and (reach == "all" or not os.path.exists(gate)):
                    own = [("this run", live.spoken())]
                knock(door, reach, tapes + own, rng, visits, held)
                let_go(held)
            rounds += bool(found)
            if rounds == 1:
                open(gate, "w").close()
            time.sleep(0.1)
            let_go(held)
    finally:
        let_go(held, True)
        print(f"{len(known)} doors at the end, {rounds} rounds, {closed} without a door:", dict(visits))
        if rounds == 0 or closed == 0 or visits["crowd"] < CROWD:
            print("the strangers have not done what they should")
            os._exit(1)


if sys.argv[1] == "record":
    sys.exit(record(sys.argv[2], sys.argv[4:]))
besiege(sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5:])
