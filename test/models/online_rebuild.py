"""An index gets a new file while its table is written to (src/cluster/workers/rebuild.c).

As standby_build.py: moves from state to state, and rules that can be left out.  A crash puts
the heap, the transactions and the stub back to what the last flush of WAL has made durable;
the file is as it was, but for the entries that the undo journal takes out.
"""
from typing import NamedTuple

import heap as h
from heap import ABORTED, COMMITTED, DEAD, RUNNING

RULES = {
    'wait_writers': 'step 2: wait for writers that may have left the index out',
    'new_file': 'each try begins with an empty file of its own',
    'drop_present': 'what writers have inserted is not inserted again',
    'root': 'the entry of a HOT update is that of the root of its chain',
    'served': 'step 4: a snapshot is served that sees the scan\'s transaction as over, not one '
              'whose xmin is that of the scan\'s snapshot, or a later one',
    'undo': 'entries whose WAL a crash has lost are taken out',
    'flush_removal': 'VACUUM removes entries after WAL has been flushed',
    'scan_after_wait': 'the snapshot is taken after the wait',
}


class System(NamedTuple):
    pages: int = 1
    per_page: int = 2
    keys: int = 2
    xids: int = 3
    changes: int = 999
    snapshots: int = 1
    crashes: int = 0
    tries: int = 2
    left_out: str = ''

    def slots(self, page):
        return h.slots(self, page)

    def keeps(self, rule):
        return h.keeps(self, rule, RULES)


class Durable(NamedTuple):
    """What is in WAL of."""
    status: tuple
    heap: tuple
    stub: str                   # invalid, filling, valid
    number: int                 # of the file that it names
    filled_by: int              # once valid: the transaction that has filled it
    filled_xmin: int            # of the snapshot by which it did


class State(NamedTuple):
    now: Durable
    flushed: Durable
    file: tuple                 # (key, slot), sorted
    journal: tuple              # entries since the last flush
    queued: tuple               # (xid, number of the file or 0: left out, key, slot)
    changes: int
    crashes: int
    snapshots: tuple            # (xmin, committed)
    # the rebuild
    step: str                   # '', wait, scan, look, insert, end, valid
    waits: frozenset            # for these xids
    by: frozenset               # S: transactions it takes for committed
    page: int
    found: frozenset
    present: frozenset
    by_xmin: int                # its xmin
    xid: int                    # 0: none


def start(sys):
    empty = Durable((COMMITTED,), (None,) * (sys.pages * sys.per_page), 'invalid', 0, 0, 0)
    return State(empty, empty, (), (), (), 0, 0, (), '', frozenset(), frozenset(), 0,
                 frozenset(), frozenset(), 0, 0)


def is_now(state, **what):
    return state._replace(now=state.now._replace(**what))


def xmin(state):
    return h.oldest_running(state.now.status)


def horizon_of(state):
    """Neither a transaction nor a snapshot, nor the rebuild's, needs what is older."""
    return min([xmin(state)] + [q[0] for q in state.snapshots]
               + [x for x in [min_of_rebuild(state)] if x])


def min_of_rebuild(state):
    if state.step not in ('scan', 'look', 'insert'):
        return 0
    missing = [x for x in range(len(state.now.status)) if x not in state.by]
    return min(missing + [len(state.now.status)])


# ---- writers ----

def with_xid(sys, state):
    if state.changes >= sys.changes:
        return
    state = state._replace(changes=state.changes + 1)
    for xid, status in enumerate(state.now.status):
        if status == RUNNING and xid != state.xid:
            yield xid, state
    if len(state.now.status) <= sys.xids:
        yield len(state.now.status), is_now(state, status=state.now.status + (RUNNING,))


def change(state, changes):
    return is_now(state, heap=h.apply(state.now.heap, changes))


def queue(state, xid, key, slot):
    """Which file an entry is for is decided now; it goes in later."""
    number = 0 if state.now.stub == 'invalid' else state.now.number
    return state._replace(queued=tuple(sorted(state.queued + ((xid, number, key, slot),))))


def inserts(sys, before):
    for xid, state in with_xid(sys, before):
        for slot in h.free_slots(state.now.heap, range(len(state.now.heap)))[:1]:
            for key in range(sys.keys):
                yield queue(change(state, {slot: h.new_row(key, xid)}), xid, key, slot)


def updates(sys, before):
    for xid, state in with_xid(sys, before):
        for changes, entry in h.updates(sys, state.now.heap, state.now.status, xid):
            after = change(state, changes)
            yield queue(after, xid, *entry) if entry else after


def enter(state, xid):
    for x, number, key, slot in state.queued:
        if x == xid and number != 0 and number == state.now.number:
            state = state._replace(file=h.with_entry(state.file, (key, slot)),
                                   journal=state.journal + ((key, slot),))
    return state._replace(queued=tuple(q for q in state.queued if q[0] != xid))


def end(state, xid, how):
    state = is_now(state, status=h.with_status(state.now.status, xid, how))
    return state._replace(queued=tuple(q for q in state.queued if q[0] != xid))


def ends(sys, state):
    for xid, status in enumerate(state.now.status):
        if status == RUNNING and xid != state.xid:
            yield end(enter(state, xid), xid, COMMITTED)
            yield end(enter(state, xid), xid, ABORTED)
            if any(q[0] == xid for q in state.queued):
                yield end(state, xid, ABORTED)


def entering(sys, state):
    for xid in sorted({q[0] for q in state.queued}):
        yield enter(state, xid)


# ---- cleaning ----

def pruned(sys, state):
    for page in range(sys.pages):
        changes, _ = h.prune(state.now.heap, sys.slots(page), horizon_of(state), state.now.status)
        state = change(state, changes)
    return state


def prunings(sys, state):
    yield pruned(sys, state)


def vacuums(sys, state):
    if state.step != '':
        return                  # for the lock of the rebuild
    state = pruned(sys, state)
    dead = {s: None for s, there in enumerate(state.now.heap) if there == DEAD}
    if not dead:
        return
    if state.now.stub == 'filling':
        state = is_now(state, stub='invalid')
    if sys.keeps('flush_removal'):
        state = flushed(state)
    if state.now.stub == 'valid':
        state = state._replace(file=tuple(e for e in state.file if e[1] not in dead))
        yield state             # a crash may come here
    yield change(state, dead)


def flushed(state):
    return state._replace(flushed=state.now, journal=())


def flushes(sys, state):
    if state.flushed != state.now:
        yield flushed(state)


def crashes(sys, state):
    if state.crashes >= sys.crashes:
        return
    file = list(state.file)
    if sys.keeps('undo'):
        for entry in state.journal:
            if entry in file:
                file.remove(entry)
    status = h.all_over(state.flushed.status)
    # transactions that nothing durable is known of; their ids may be used again
    after = state._replace(now=state.flushed._replace(status=status), file=tuple(file), queued=(),
                           snapshots=(), step='', crashes=state.crashes + 1, waits=frozenset(),
                           found=frozenset(), present=frozenset(), by=frozenset(), page=0, by_xmin=0, xid=0)
    if state.flushed.number != state.now.number:
        after = after._replace(file=())     # an orphan; the older one has gone
        after = is_now(after, stub='invalid')
    yield flushed(after)


# ---- readers ----

def snapshot(state):
    return h.committed(state.now.status)


def snapshots(sys, state):
    if len(state.snapshots) < sys.snapshots:
        one = (xmin(state), snapshot(state))
        if one not in state.snapshots:
            yield state._replace(snapshots=state.snapshots + (one,))
    elif state.snapshots:
        yield state._replace(snapshots=state.snapshots[1:])


# ---- the rebuild ----

def mark(sys, state):
    number = state.now.number + 1
    if number > sys.tries:
        return
    state = is_now(state, stub='filling', number=number)
    file = () if sys.keeps('new_file') else state.file
    writers = frozenset(q[0] for q in state.queued) | frozenset(
        x for x, s in enumerate(state.now.status) if s == RUNNING)
    yield state._replace(file=file, journal=(), step='wait', waits=writers, page=0,
                         by=snapshot(state), by_xmin=xmin(state), found=frozenset(), present=frozenset())


def waited(sys, state):
    if sys.keeps('wait_writers') and any(state.now.status[x] == RUNNING for x in state.waits):
        return
    state = state._replace(step='scan', waits=frozenset())
    if sys.keeps('scan_after_wait'):
        state = state._replace(by=snapshot(state), by_xmin=xmin(state))
    yield state


def scan(sys, state):
    found = set(state.found)
    for root in h.roots(state.now.heap, sys.slots(state.page)):
        for slot, member in h.chain(state.now.heap, root):
            if h.visible(member, state.by):
                found.add((member.key, root if sys.keeps('root') else slot))
    page = state.page + 1
    yield state._replace(found=frozenset(found), page=page,
                         step='look' if page == sys.pages else 'scan')


def look(sys, state):
    yield state._replace(step='insert', present=frozenset(state.file))


def insert(sys, state):
    """A partition a move; then the transaction gets an id."""
    if state.now.stub != 'filling':
        yield over(state)       # has been marked: the try fails
        return
    for entry in sorted(state.found):
        state = state._replace(found=state.found - {entry})
        if entry not in state.present or not sys.keeps('drop_present'):
            state = state._replace(file=h.with_entry(state.file, entry))
            yield state
            return
    xid = len(state.now.status)
    yield is_now(state._replace(step='end', xid=xid, present=frozenset()),
                 status=state.now.status + (RUNNING,))


def over(state):
    return state._replace(step='', waits=frozenset(), by=frozenset(), found=frozenset(),
                          present=frozenset(), by_xmin=0, xid=0)


def ended(sys, state):
    """The transaction of the scan is over; a later one goes on."""
    yield is_now(state._replace(step='valid'),
                 status=h.with_status(state.now.status, state.xid, COMMITTED))


def validate(sys, state):
    if state.now.stub == 'filling':
        state = is_now(state, stub='valid', filled_by=state.xid, filled_xmin=state.by_xmin)
    yield over(state)


def rebuilding(sys, state):
    steps = {'': mark, 'wait': waited, 'scan': scan, 'look': look, 'insert': insert,
             'end': ended, 'valid': validate}
    if state.step == '' and state.now.stub == 'valid':
        return
    if state.step in ('wait', 'scan'):      # it may fail
        yield over(state)
    yield from steps[state.step](sys, state)


def breakings(sys, state):
    """The file is lost, or found damaged."""
    if state.now.stub == 'valid' and state.now.number < sys.tries:
        yield is_now(state, stub='invalid')


MOVES = [(inserts, 20), (updates, 20), (ends, 20), (entering, 10), (prunings, 8), (vacuums, 8),
         (flushes, 10), (crashes, 1), (snapshots, 8), (rebuilding, 14), (breakings, 1)]


# ---- what must hold ----

def serves(sys, state, taken):
    if sys.keeps('served'):
        return state.now.filled_by in taken[1]
    return taken[0] >= state.now.filled_xmin


def violation(sys, state):
    if state.now.stub != 'valid':
        return None, 0
    # of a transaction that is at work the entries are in by its end
    new = (xmin(state), snapshot(state))
    if not serves(sys, state, new):
        return 'a new snapshot is not served', 1
    served = [taken[1] for taken in state.snapshots if serves(sys, state, taken)] + [new[1]]
    for committed in served:
        wrong = h.look_up(state.now.heap, state.file, committed, 'the index')
        if wrong is not None:
            return wrong, 1
    return None, len(served)


SMALL = {
    'a rebuild, two changes': System(xids=2, changes=2, tries=1),
    'a rebuild and an older snapshot, three changes': System(keys=1, changes=3, tries=1),
    'a rebuild and a crash, two changes': System(xids=2, changes=2, crashes=1, keys=1, snapshots=0),
}
LARGE = [
    System(pages=2, per_page=4, keys=3, xids=60, snapshots=3, tries=6),
    System(pages=2, per_page=4, keys=3, xids=60, snapshots=3, tries=6, crashes=4),
]
LIMIT = 1500000
STEPS = 300
