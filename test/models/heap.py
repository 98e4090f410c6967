"""A heap small enough to enumerate: pages of slots with HOT chains, pruning, freezing.

A heap is a tuple of slots; a slot is None (unused), DEAD (an index may still lead to it), a
Redirect, or a Row.  Slot s is on page s // per_page.  Heaps are immutable: each change gives
another one, so that states of a model can be compared and shared.

Transaction ids count from 1; a tuple of statuses, by xid, says how each one ended.

Entries of an index, which are a sorted tuple too, are pairs (key, slot).
"""
from typing import NamedTuple, Optional

RUNNING, COMMITTED, ABORTED = 'r', 'c', 'a'
DEAD = 'dead'


# ---- what models share ----

def slots(system, page):
    return range(page * system.per_page, (page + 1) * system.per_page)


def keeps(system, rule, rules):
    """Is a rule of the model followed, or is it the one that is left out?"""
    assert rule in rules
    return system.left_out != rule


def free_slots(heap, among):
    return [slot for slot in among if heap[slot] is None]


def oldest_running(status):
    """The first transaction that is not over, or the next one to begin."""
    return min([x for x, s in enumerate(status) if s == RUNNING] + [len(status)])


def committed(status):
    """What a snapshot taken now sees."""
    return frozenset(x for x, s in enumerate(status) if s == COMMITTED)


def with_status(status, xid, how):
    return status[:xid] + (how,) + status[xid + 1:]


def all_over(status):
    """After a crash, or at a promotion."""
    return tuple(ABORTED if s == RUNNING else s for s in status)


# ---- entries ----

def with_entry(entries, entry):
    return tuple(sorted(entries + (entry,)))


def without(entries, entry):
    return tuple(e for e in entries if e != entry)


def without_slots(entries, slots):
    return tuple(e for e in entries if e[1] not in slots)


def look_up(heap, entries, by, where):
    """What is wrong with entries for a snapshot that takes these for committed, or None."""
    for root in roots(heap, range(len(heap))):
        for _, member in chain(heap, root):
            if visible(member, by):
                n = entries.count((member.key, root))
                if n != 1:
                    return '%s: %d entries for key %d at %d' % (where, n, member.key, root)
    for key, root in entries:
        for _, member in chain(heap, root):
            if visible(member, by) and member.key != key:
                return '%s: entry of key %d at %d, where %d is' % (where, key, root, member.key)
    return None


# ---- rows ----

class Redirect(NamedTuple):
    to: int


class Row(NamedTuple):
    key: int
    xmin: int
    xmax: int                   # 0: not deleted or updated
    next: Optional[int]         # the HOT update's slot
    heap_only: bool
    frozen: bool


def new_row(key, xid, heap_only=False):
    return Row(key, xid, 0, None, heap_only, False)


def put(heap, slot, what):
    return heap[:slot] + (what,) + heap[slot + 1:]


def row(heap, slot):
    there = heap[slot]
    return there if isinstance(there, Row) else None


def chain(heap, root):
    """Members of the HOT chain that an index reaches by this slot, as (slot, row)."""
    there = heap[root]
    slot = there.to if isinstance(there, Redirect) else root
    prior = None
    members = []
    while slot is not None:
        member = row(heap, slot)
        if member is None or (prior is not None and member.xmin != prior):
            break
        members.append((slot, member))
        prior = member.xmax
        slot = member.next if member.xmax else None
    return members


def roots(heap, slots):
    for slot in slots:
        there = heap[slot]
        if isinstance(there, Redirect) or (isinstance(there, Row) and not there.heap_only):
            yield slot


def inserted(member, status):
    return member.frozen or status[member.xmin] == COMMITTED


def dead_to_all(member, horizon, status):
    """No snapshot that is left on this server can see it."""
    if not member.frozen and status[member.xmin] == ABORTED:
        return True
    return member.xmax != 0 and status[member.xmax] == COMMITTED and member.xmax < horizon


def visible(member, committed):
    """To a snapshot, which is the set of transactions it takes for committed."""
    if not (member.frozen or member.xmin in committed):
        return False
    return not (member.xmax and member.xmax in committed)


def live_tip(heap, root, status, xid):
    """The member of a chain that this transaction may update or delete."""
    for slot, member in chain(heap, root):
        if inserted(member, status) or member.xmin == xid:
            if member.xmax == 0 or status[member.xmax] == ABORTED:
                return slot, member
    return None


def updates(system, heap, status, xid):
    """Deletions, HOT updates and other updates that a transaction may make: what they change, and
    the entry that the last ones need."""
    for root in roots(heap, range(len(heap))):
        tip = live_tip(heap, root, status, xid)
        if tip is None:
            continue
        slot, old = tip
        yield {slot: old._replace(xmax=xid, next=None)}, None
        for to in free_slots(heap, slots(system, slot // system.per_page))[:1]:
            yield {to: new_row(old.key, xid, heap_only=True), slot: old._replace(xmax=xid, next=to)}, None
        for to in free_slots(heap, range(len(heap)))[:1]:
            for key in range(system.keys):
                yield {to: new_row(key, xid), slot: old._replace(xmax=xid, next=None)}, (key, to)


def prune(heap, slots, horizon, status):
    """What pruning does to a page, as {slot: content}, and the newest xmax it removes: of rows
    that had ever been visible, so 0 if they were aborted inserts."""
    changes = {}
    newest = 0
    for root in roots(heap, slots):
        members = chain(heap, root)
        alive = 0
        while alive < len(members) and dead_to_all(members[alive][1], horizon, status):
            alive += 1
        for slot, _ in members[:alive]:
            changes[slot] = None
        if alive == len(members):
            changes[root] = DEAD
        elif alive:
            changes[root] = Redirect(members[alive][0])
    in_chain = {slot for root in roots(heap, slots) for slot, _ in chain(heap, root)}
    for slot in slots:
        there = row(heap, slot)
        if there and there.heap_only and not there.frozen and status[there.xmin] == ABORTED:
            changes[slot] = None
        elif there and there.heap_only and slot not in in_chain \
                and dead_to_all(there, horizon, status):
            changes[slot] = None
    for slot in changes:
        there = row(heap, slot)
        if there and inserted(there, status) and there.xmax:
            newest = max(newest, there.xmax)
    # a chain whose living members are all aborted has gone as a whole
    after = apply(heap, changes)
    for slot in slots:
        there = after[slot]
        if isinstance(there, Redirect) and row(after, there.to) is None:
            changes[slot] = DEAD
    return changes, newest


def apply(heap, changes):
    heap = list(heap)
    for slot, what in changes.items():
        heap[slot] = what
    return tuple(heap)
