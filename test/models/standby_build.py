"""A primary, its WAL, and a standby that makes the file of an index while replay goes on.

States are values: moves(state) gives what may happen next, so that small systems are
enumerated and large ones walked through at random (check.py does both).  A rule can be left
out by name: RULES says what each one is for, and that the model finds it is tested.

What is modelled: src/README, "Standbys", B1 to B7: heap changes, entries and their records, commits,
snapshots on the standby and what ends them, WAL that a crash of the primary loses, the
builder's steps.  Not: the files themselves, TOAST, multixacts, restarts of the standby.
"""
from typing import NamedTuple

import heap as h
from heap import ABORTED, COMMITTED, DEAD, RUNNING, Redirect, Row

RULES = {
    # of the builder
    'wait': 'wait until all transactions before N0 are over',
    'skip_new': 'leave out rows inserted since N0: their INSERT is in the delta',
    'dead_chains': 'leave out chains that were dead as of N0: their DELETE may be past',
    'new_members': 'a chain lives by members that were added to it since N0',
    'once': 'what is both in the delta and found by the scan is one entry',
    'deletes': 'the last operation of the delta on an entry decides, deletions too',
    'usable': 'a snapshot older than what was left out as dead does not use the file',
    'delta_first': 'the delta begins before N0 is read',
    # of the primary
    'flush_vacuum': 'P3: the DELETE is flushed before VACUUM removes the entry',
    'flush_kill': 'P4: likewise if a scan removes it',
    'horizon': 'P4: the DELETE of a scan ends older snapshots of the standby',
    'undo': 'entries whose INSERT a crash has lost are taken out',
    'entry_first': 'P1: the entry is there before its INSERT is logged',
    'insert_first': 'P2: the INSERT is logged before the commit',
}


class System(NamedTuple):
    """The size of the system, and which of its parts may move."""
    pages: int = 1
    per_page: int = 2
    keys: int = 2
    xids: int = 3
    changes: int = 999          # inserts, updates and deletions at most
    snapshots: int = 1
    crashes: int = 0
    lag: bool = False           # is WAL flushed later than written?
    build: bool = True          # or is the standby's file complete from the start
    left_out: str = ''

    def slots(self, page):
        return h.slots(self, page)

    def keeps(self, rule):
        return h.keeps(self, rule, RULES)


class State(NamedTuple):
    # the primary
    status: tuple               # by xid
    heap: tuple
    index: tuple                # (key, slot), sorted
    queued: tuple               # (xid, key, slot): no entry yet
    tail: tuple                 # of WAL: not flushed
    crashes: int
    changes: int
    # the standby
    seen: tuple                 # statuses by xid, as far as replay has got
    copy: tuple                 # of the heap
    file: tuple                 # (key, slot), sorted
    delta: tuple                # ('+' or '-', entry)
    phase: str                  # none, delta, scan, fold, live
    n0: int
    page: int
    found: frozenset
    usable: int                 # to snapshots with such an xmin, or a later one
    snapshots: tuple            # (xmin, committed)


def start(sys):
    empty = (None,) * (sys.pages * sys.per_page)
    phase = 'none' if sys.build else 'live'
    return State((COMMITTED,), empty, (), (), (), 0, 0,
                 (COMMITTED,), empty, (), (), phase, 0, 0, frozenset(), 0, ())


# ---- replay ----

def see(state, upto):
    """xids that replay has not met before a later one are running."""
    missing = upto + 1 - len(state.seen)
    if missing <= 0:
        return state
    return state._replace(seen=state.seen + (RUNNING,) * missing)


def end_older(state, horizon):
    """A conflict: snapshots that may see what was removed are ended."""
    if not horizon:
        return state
    return state._replace(snapshots=tuple(q for q in state.snapshots if q[0] > horizon))


def replay_entry(state, op, entry, horizon):
    state = end_older(state, horizon)
    if state.phase == 'none':
        return state
    if state.phase != 'live':
        return state._replace(delta=state.delta + ((op, entry),))
    if op == '+':
        return state._replace(file=h.with_entry(state.file, entry))
    return state._replace(file=h.without(state.file, entry))


def replay(state, record):
    kind = record[0]
    if kind == 'heap':
        _, changes, xid, horizon = record
        state = end_older(see(state, xid), horizon)
        return state._replace(copy=h.apply(state.copy, dict(changes)))
    if kind == 'dead':
        if state.phase in ('none', 'live'):
            return state._replace(file=h.without_slots(state.file, record[1]))
        return state._replace(phase='none', n0=0, page=0, found=frozenset(), delta=(), usable=0)
    if kind in '+-':
        return replay_entry(state, kind, record[1], record[2])
    if kind == 'crash':         # running transactions are over
        state = see(state, record[1])
        return state._replace(seen=h.all_over(state.seen))
    state = see(state, record[1])
    return state._replace(seen=h.with_status(state.seen, record[1], kind))


# ---- the primary ----

def flushed(state, n=None):
    """The first n records of the tail, or all, are flushed, and replayed at once: a standby
    that lags is in a state that this one has been in."""
    done = state.tail[:n]
    state = state._replace(tail=state.tail[len(done):])
    for record in done:
        state = replay(state, record)
    return state


def log(sys, state, *records):
    state = state._replace(tail=state.tail + records)
    return state if sys.lag else flushed(state)


def change(sys, state, changes, xid, horizon=0):
    state = state._replace(heap=h.apply(state.heap, changes))
    return log(sys, state, ('heap', tuple(changes.items()), xid, horizon))


def horizon_of(state):
    return h.oldest_running(state.status)


def with_xid(sys, state):
    """Transactions that may make one more change, and one that may begin."""
    if state.changes >= sys.changes:
        return
    state = state._replace(changes=state.changes + 1)
    for xid, status in enumerate(state.status):
        if status == RUNNING:
            yield xid, state
    if len(state.status) <= sys.xids:
        yield len(state.status), state._replace(status=state.status + (RUNNING,))


def queue(state, xid, key, slot):
    return state._replace(queued=state.queued + ((xid, key, slot),))


def inserts(sys, before):
    for xid, state in with_xid(sys, before):
        free = h.free_slots(state.heap, range(len(state.heap)))
        for slot in free[:1 if sys.build and sys.pages == 1 else None]:
            for key in range(sys.keys):
                yield queue(change(sys, state, {slot: h.new_row(key, xid)}, xid), xid, key, slot)


def updates(sys, before):
    for xid, state in with_xid(sys, before):
        for changes, entry in h.updates(sys, state.heap, state.status, xid):
            after = change(sys, state, changes, xid)
            yield queue(after, xid, *entry) if entry else after


def enter(sys, state, xid):
    """Entries of what a transaction has queued, then their records."""
    mine = [(key, slot) for x, key, slot in state.queued if x == xid]
    state = state._replace(queued=tuple(q for q in state.queued if q[0] != xid))
    for entry in mine:
        state = state._replace(index=h.with_entry(state.index, entry))
        state = log(sys, state, ('+', entry, 0))
    return state


def end(state, xid, how):
    return state._replace(status=h.with_status(state.status, xid, how), queued=tuple(q for q in state.queued if q[0] != xid))


def aborts(sys, state):
    for xid, status in enumerate(state.status):
        if status != RUNNING:
            continue
        yield log(sys, end(state, xid, ABORTED), (ABORTED, xid))
        if any(q[0] == xid for q in state.queued):
            yield log(sys, end(enter(sys, state, xid), xid, ABORTED), (ABORTED, xid))
            if not sys.keeps('entry_first'):    # logged, then the disk is full
                lost = [('+', (key, slot), 0) for x, key, slot in state.queued if x == xid]
                yield log(sys, end(log(sys, state, *lost), xid, ABORTED), (ABORTED, xid))


def commits(sys, state):
    for xid, status in enumerate(state.status):
        if status != RUNNING:
            continue
        if not sys.keeps('insert_first'):
            late = log(sys, state, (COMMITTED, xid))
            yield end(enter(sys, late, xid), xid, COMMITTED)
            continue
        yield log(sys, end(enter(sys, state, xid), xid, COMMITTED), (COMMITTED, xid))


def entering(sys, state):
    for xid in sorted({q[0] for q in state.queued}):
        yield enter(sys, state, xid)


def prunings(sys, state):
    for page in range(sys.pages):
        changes, newest = h.prune(state.heap, sys.slots(page), horizon_of(state), state.status)
        if changes:
            yield change(sys, state, changes, 0, newest)


def kills(sys, state):
    """Scans remove entries whose rows are dead to all."""
    horizon = horizon_of(state)
    for entry in sorted(set(state.index)):
        members = h.chain(state.heap, entry[1])
        if state.heap[entry[1]] != DEAD and not (
                members and all(h.dead_to_all(m, horizon, state.status) for _, m in members)):
            continue
        newest = max([m.xmax for _, m in members if h.inserted(m, state.status)] + [0])
        after = log(sys, state, ('-', entry, newest if sys.keeps('horizon') else 0))
        if sys.keeps('flush_kill'):
            after = flushed(after)
        yield after._replace(index=h.without(after.index, entry))


def freezes(sys, state):
    horizon = horizon_of(state)
    for slot, there in enumerate(state.heap):
        if isinstance(there, Row) and not there.frozen and there.xmin < horizon \
                and state.status[there.xmin] == COMMITTED:
            yield change(sys, state, {slot: there._replace(frozen=True)}, 0, there.xmin)


def vacuums(sys, state):
    """Prune all, remove entries of dead line pointers, free these."""
    for page in range(sys.pages):
        changes, newest = h.prune(state.heap, sys.slots(page), horizon_of(state), state.status)
        if changes:
            state = change(sys, state, changes, 0, newest)
    dead = {slot: None for slot, there in enumerate(state.heap) if there == DEAD}
    gone = [e for e in state.index if e[1] in dead]
    before = flushed(state)
    ways = [[('-', entry, 0) for entry in sorted(set(gone))]]
    if gone:
        ways.append([('dead', tuple(dead))])
    for records in ways if dead else ():
        state = log(sys, before, *records)
        if sys.keeps('flush_vacuum'):
            state = flushed(state)
        state = state._replace(index=h.without_slots(state.index, dead))
        yield state             # a crash may come here
        yield change(sys, state, dead, 0)


def flushes(sys, state):
    if state.tail:
        yield flushed(state, 1)


def crashes(sys, state):
    """Of the primary: what is not flushed is lost.  What is there of the heap is what the
    standby has: it has replayed all that was flushed."""
    if state.crashes >= sys.crashes or not state.tail:
        return
    index = state.index
    if sys.keeps('undo'):
        for record in state.tail:
            if record[0] == '+':
                index = h.without(index, record[1])
    known = state.seen + (RUNNING,) * (len(state.status) - len(state.seen))
    status = h.all_over(known)
    state = state._replace(status=status, heap=state.copy, index=index, queued=(), tail=(),
                           crashes=state.crashes + 1)
    yield flushed(state._replace(tail=(('crash', len(status) - 1),)))


# ---- the standby ----

def snapshot(state):
    return h.oldest_running(state.seen), h.committed(state.seen)


def snapshots(sys, state):
    if len(state.snapshots) < sys.snapshots:
        if snapshot(state) not in state.snapshots:
            yield state._replace(snapshots=state.snapshots + (snapshot(state),))
    elif state.snapshots:
        yield state._replace(snapshots=state.snapshots[1:])


def scan_root(sys, state, root):
    """What the builder makes of a chain: its entry or None, and what `usable` becomes."""
    def dead(member):
        return member.xmax and state.seen[member.xmax] == COMMITTED and member.xmax < state.n0

    def aborted(member):
        return not member.frozen and state.seen[member.xmin] == ABORTED

    usable = state.usable
    there = state.copy[root]
    if isinstance(there, Row) and not there.frozen:
        if aborted(there):
            return None, usable
        if there.xmin >= state.n0 and sys.keeps('skip_new'):
            return None, usable
    members = [m for _, m in h.chain(state.copy, root)]
    living = [m for m in members if not aborted(m)]
    if not living:
        return None, usable
    for member in living:
        if dead(member) and sys.keeps('usable'):
            usable = max(usable, member.xmax + 1)
    if all(dead(m) for m in living) and sys.keeps('dead_chains'):
        return None, usable
    if not sys.keeps('new_members'):
        old = [m for m in living if m.frozen or m.xmin < state.n0]
        if all(dead(m) for m in old):
            return None, usable
    return (living[-1].key, root), usable


def scan_page(sys, state):
    found = set(state.found)
    for root in h.roots(state.copy, sys.slots(state.page)):
        entry, usable = scan_root(sys, state, root)
        state = state._replace(usable=usable)
        if entry is not None:
            found.add(entry)
    page = state.page + 1
    return state._replace(found=frozenset(found), page=page,
                          phase='fold' if page == sys.pages else 'scan')


def fold(sys, state):
    entries = list(state.found)
    for op, entry in state.delta:
        if op == '-':
            if sys.keeps('deletes'):
                entries = [e for e in entries if e != entry]
        elif entry not in entries or not sys.keeps('once'):
            entries.append(entry)
    return state._replace(file=tuple(sorted(entries)), phase='live', delta=(), found=frozenset())


def building(sys, state):
    if state.phase == 'none':
        if sys.keeps('delta_first'):
            yield state._replace(phase='delta', n0=len(state.seen))
        elif state.n0 == 0:
            yield state._replace(n0=len(state.seen))
        else:
            yield state._replace(phase='delta')
    elif state.phase == 'delta':
        if not sys.keeps('wait') or RUNNING not in state.seen[:state.n0]:
            yield state._replace(phase='scan')
    elif state.phase == 'scan':
        yield scan_page(sys, state)
    elif state.phase == 'fold':
        yield fold(sys, state)


MOVES = [(inserts, 30), (updates, 20), (commits, 12), (aborts, 6), (entering, 10), (prunings, 12),
         (kills, 10), (freezes, 3), (vacuums, 7), (flushes, 30), (crashes, 2), (snapshots, 10),
         (building, 8)]


# ---- what must hold ----

def violation(sys, state):
    """What is wrong in this state, or None; and how many look-ups have been checked."""
    wrong = h.look_up(state.heap, state.index, h.committed(state.status), 'primary')
    n = 1
    if wrong is None and state.phase == 'live':
        for xmin, committed in state.snapshots + (snapshot(state),):
            if xmin >= state.usable:
                wrong = wrong or h.look_up(state.copy, state.file, committed, 'standby')
                n += 1
    return wrong, n

# ---- what is run ----

SMALL = {
    'a build, two changes': System(xids=2, changes=2),
    'a build, three transactions, one key': System(xids=3, keys=1, snapshots=0, changes=3),
    'a crash of the primary': System(xids=2, per_page=1, lag=True, crashes=1, build=False, snapshots=1),
}
LARGE = [
    System(pages=2, per_page=4, keys=3, xids=60, snapshots=3),
    System(pages=2, per_page=4, keys=3, xids=60, snapshots=3, lag=True, crashes=3),
    System(pages=2, per_page=4, keys=3, xids=60, snapshots=3, lag=True, crashes=5, build=False),
]
LIMIT = 1000000
STEPS = 300
