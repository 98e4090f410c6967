"""A primary, two standbys that have built their files at different times, and promotions.

How long are files good under another primary?  Replay is at once, so all servers have the same
heap, and each has its own set of entries: `index` of the primary, one for each standby.  A
standby is promoted: its file is the index from then on.  The other one follows with its file, and
so may the old primary, if it was shut down cleanly.  When a bulk delete is over (SWEPT), before
TIDs are free, files that were made under another primary are given up; they can be built again.

check.py runs it.  What is modelled: src/README, "Standbys", S4.  Not: lag, crashes,
snapshots that are older than a build (standby_build.py has them).
"""
from typing import NamedTuple

import heap as h
from heap import ABORTED, COMMITTED, DEAD, RUNNING, Row

RULES = {
    'swept': 'a file that was made under another primary goes before this one frees TIDs',
}


class System(NamedTuple):
    pages: int = 1
    per_page: int = 2
    keys: int = 2
    xids: int = 3
    promotions: int = 1
    left_out: str = ''

    def slots(self, page):
        return h.slots(self, page)

    def keeps(self, rule):
        return h.keeps(self, rule, RULES)


class State(NamedTuple):
    status: tuple               # by xid
    heap: tuple
    index: tuple                # (key, slot), sorted
    files: tuple                # of the standbys: such a tuple, or None: not built
    made: tuple                 # of each file: under which primary, counted by promotions
    promotions: int


def start(sys):
    return State((COMMITTED,), (None,) * (sys.pages * sys.per_page), (), (None, None), (0, 0), 0)


# ---- records ----

def replayed(state, change, entry):
    """A record, applied by each standby that has a file."""
    return state._replace(files=tuple(None if f is None else change(f, entry) for f in state.files))


def logged_insert(state, entry):
    state = state._replace(index=h.with_entry(state.index, entry))
    return replayed(state, h.with_entry, entry)


def horizon_of(state):
    return h.oldest_running(state.status)


# ---- the primary ----

def with_xid(sys, state):
    for xid, status in enumerate(state.status):
        if status == RUNNING:
            yield xid, state
    if len(state.status) <= sys.xids:
        yield len(state.status), state._replace(status=state.status + (RUNNING,))


def put_new(state, xid, key, slot):
    heap = h.put(state.heap, slot, h.new_row(key, xid))
    return logged_insert(state._replace(heap=heap), (key, slot))


def inserts(sys, before):
    for xid, state in with_xid(sys, before):
        for page in range(sys.pages):
            for slot in h.free_slots(state.heap, sys.slots(page))[:1]:
                for key in range(sys.keys):
                    yield put_new(state, xid, key, slot)


def updates(sys, before):
    """Deletions, HOT updates, other updates."""
    for xid, state in with_xid(sys, before):
        for root in h.roots(state.heap, range(len(state.heap))):
            tip = h.live_tip(state.heap, root, state.status, xid)
            if tip is None:
                continue
            slot, old = tip
            yield state._replace(heap=h.put(state.heap, slot, old._replace(xmax=xid, next=None)))
            for to in h.free_slots(state.heap, sys.slots(slot // sys.per_page))[:1]:
                changes = {slot: old._replace(xmax=xid, next=to),
                           to: h.new_row(old.key, xid, heap_only=True)}
                yield state._replace(heap=h.apply(state.heap, changes))
                for key in range(sys.keys):
                    gone = h.put(state.heap, slot, old._replace(xmax=xid, next=None))
                    yield put_new(state._replace(heap=gone), xid, key, to)


def ends(sys, state):
    for xid, status in enumerate(state.status):
        if status == RUNNING:
            for how in (COMMITTED, ABORTED):
                yield state._replace(status=h.with_status(state.status, xid, how))


def prunings(sys, state):
    for page in range(sys.pages):
        changes, _ = h.prune(state.heap, sys.slots(page), horizon_of(state), state.status)
        if changes:
            yield state._replace(heap=h.apply(state.heap, changes))


def is_dead(state, slot):
    if state.heap[slot] == DEAD:
        return True
    members = h.chain(state.heap, slot)
    return bool(members) and all(h.dead_to_all(m, horizon_of(state), state.status) for _, m in members)


def kills(sys, state):
    """A scan logs that an entry goes and removes it, or is cut short in between."""
    for entry in sorted(set(state.index)):
        if is_dead(state, entry[1]):
            after = replayed(state, h.without, entry)
            yield after
            yield after._replace(index=h.without(state.index, entry))


def swept(sys, state):
    if not sys.keeps('swept'):
        return state
    return state._replace(files=tuple(f if made == state.promotions else None
                                      for f, made in zip(state.files, state.made)))


def vacuums(sys, state):
    """Line pointers whose entries the primary has removed, and logged, are free."""
    for page in range(sys.pages):
        changes, _ = h.prune(state.heap, sys.slots(page), horizon_of(state), state.status)
        state = state._replace(heap=h.apply(state.heap, changes))
    dead = {slot: None for slot, there in enumerate(state.heap) if there == DEAD}
    for entry in [e for e in state.index if e[1] in dead]:
        state = replayed(state, h.without, entry)._replace(index=h.without(state.index, entry))
    if dead:
        yield swept(sys, state)._replace(heap=h.apply(state.heap, dead))


# ---- the standbys ----

def found(state, root):
    """The entry that a build makes of a chain when no transaction is running, or None."""
    living = [m for _, m in h.chain(state.heap, root)
              if m.frozen or state.status[m.xmin] != ABORTED]
    there = state.heap[root]
    if not living or (isinstance(there, Row) and state.status[there.xmin] == ABORTED):
        return None
    if all(m.xmax and state.status[m.xmax] == COMMITTED for m in living):
        return None
    return living[-1].key, root


def builds(sys, state):
    if RUNNING in state.status:
        return
    for n, file in enumerate(state.files):
        if file is None:
            entries = [found(state, root) for root in h.roots(state.heap, range(len(state.heap)))]
            new = tuple(sorted(e for e in entries if e is not None))
            yield state._replace(files=state.files[:n] + (new,) + state.files[n + 1:],
                                 made=state.made[:n] + (state.promotions,) + state.made[n + 1:])


def promotions(sys, state):
    if state.promotions >= sys.promotions:
        return
    over = h.all_over(state.status)
    for n, index in enumerate(state.files):
        if index is None:
            continue
        # the old primary follows, or has been lost
        for old in (None, state.index if over == state.status else None):
            yield state._replace(status=over, index=index, files=(state.files[1 - n], old),
                                 made=(state.made[1 - n], state.promotions),
                                 promotions=state.promotions + 1)


MOVES = [(inserts, 20), (updates, 20), (ends, 25), (prunings, 8), (kills, 10), (vacuums, 8),
         (builds, 10), (promotions, 3)]


# ---- what must hold ----

def violation(sys, state):
    committed = h.committed(state.status)
    wrong = h.look_up(state.heap, state.index, committed, 'primary')
    n = 1
    for number, file in enumerate(state.files):
        if file is not None:
            wrong = wrong or h.look_up(state.heap, file, committed, 'standby %d' % number)
            n += 1
    return wrong, n


# ---- what is run ----

SMALL = {
    'two slots, one promotion': System(),
}
LARGE = [
    System(pages=2, per_page=3, keys=3, xids=60, promotions=9),
]
LIMIT = 1000000
STEPS = 300
