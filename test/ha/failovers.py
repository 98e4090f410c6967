"""Failovers of three servers under Patroni, with logged pmhash indexes.

    python3 failovers.py BINDIR SCRATCH N SETUP_SQL

BINDIR: of PostgreSQL, with pmhash installed.  SCRATCH: a directory, made anew.  N: failovers.
SETUP_SQL: sql/setup.sql.  Wants patroni, patronictl, etcd and psycopg2; not root.

pgbench runs all the time, and clients whose every acknowledged row must survive.  The leader is
lost in turn: kill -9 of the whole node, of its postmaster alone, of Patroni and then the server
cut off, a switchover.  On the new leader, with the first connection that it takes: each key by
index and bitmap scan gives what a sequential scan gives, all acknowledged rows are there by both,
no index is invalid or rebuilt.  Then the lost node comes back as a standby.
Prints a line "ok patroni: ..." or "not ok patroni: ..." for each test.
"""
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import psycopg2

PATIENCE = 120                  # seconds
CLIENTS = 3
SETTINGS = {
    'shared_preload_libraries': 'pmhash',
    'pmhash.wal': 'on',
    'wal_level': 'replica',
    'hot_standby': 'on',
    'wal_log_hints': 'on',
    'max_wal_senders': 10,
    'wal_keep_size': '512MB',
    'fsync': 'off',
    'max_worker_processes': 24,
    'log_min_messages': 'log',
}
TABLES = """
CREATE TABLE item (id bigint, k int, note text);
INSERT INTO item SELECT i, i % 2000, 'note ' || i % 300 FROM generate_series(1, 20000) i;
CREATE INDEX item_k ON item USING pmhash (k) WITH (wal = on);
CREATE INDEX item_note ON item USING pmhash (note) WITH (wal = on);
CREATE TABLE ack (client int, n bigint);
CREATE INDEX ack_n ON ack USING pmhash (n) WITH (wal = on);
"""
LOAD = r"""
\set k random(1, 2000)
\set id random(1, 20000)
BEGIN;
INSERT INTO item VALUES (:id, :k, 'note ' || :k % 300);
UPDATE item SET k = :k WHERE k = :k + 1 AND id = :id;
DELETE FROM item WHERE k = :k AND id > :id;
END;
SELECT count(*) FROM item WHERE k = :k;
"""
INDEXES = (('item', 'k', 'item_k'), ('item', 'note', 'item_note'), ('ack', 'n', 'ack_n'))


def free_port():
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return probe.getsockname()[1]


class Test:
    """Lines of results."""
    failed = 0

    @classmethod
    def check(cls, good, name, detail=''):
        print('%s patroni: %s' % ('ok' if good else 'not ok', name), flush=True)
        if not good:
            cls.failed += 1
            print('# ' + str(detail).replace('\n', '\n# '), flush=True)


def wait_for(what, condition, patience=PATIENCE):
    """The first true value of condition(); an error after some time."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.1)
    raise RuntimeError('%s: does not come' % what)


class Node:
    """A server and the Patroni that looks after it."""

    def __init__(self, cluster, name):
        self.cluster = cluster
        self.name = name
        self.port = free_port()
        self.rest = free_port()
        self.directory = os.path.join(cluster.scratch, name)
        self.data = os.path.join(self.directory, 'data')
        self.log = os.path.join(self.directory, 'log')
        self.process = None
        self.seen = 0           # of the log
        os.mkdir(self.directory)
        self.configuration = os.path.join(self.directory, 'patroni.json')
        with open(self.configuration, 'w') as file:
            json.dump(self.settings(), file, indent=1)

    def settings(self):
        everybody = ['local all all trust', 'host all all 127.0.0.1/32 trust',
                     'host replication all 127.0.0.1/32 trust']
        user = {'username': 'postgres'}
        return {
            'scope': 'pmhash', 'name': self.name,
            'restapi': {'listen': '127.0.0.1:%d' % self.rest,
                        'connect_address': '127.0.0.1:%d' % self.rest},
            'etcd3': {'host': '127.0.0.1:%d' % self.cluster.etcd_port},
            'bootstrap': {
                'dcs': {'ttl': 20, 'loop_wait': 1, 'retry_timeout': 4, 'synchronous_mode': True,
                        'maximum_lag_on_failover': 1 << 30, 'master_start_timeout': 0,
                        'postgresql': {'use_pg_rewind': True, 'parameters': SETTINGS}},
                'initdb': ['data-checksums', {'encoding': 'UTF8'}, {'locale': 'C'},
                           {'username': 'postgres'}],
                'pg_hba': everybody},
            'postgresql': {
                'listen': '127.0.0.1:%d' % self.port,
                'connect_address': '127.0.0.1:%d' % self.port,
                'data_dir': self.data, 'bin_dir': self.cluster.bindir,
                'pgpass': os.path.join(self.directory, 'pgpass'),
                'authentication': {'superuser': user, 'replication': user, 'rewind': user},
                'pg_hba': everybody,
                'parameters': {'unix_socket_directories': self.directory}},
        }

    def start(self):
        with open(self.log, 'a') as log:
            self.process = subprocess.Popen(['patroni', self.configuration], stdout=log,
                                            stderr=log, start_new_session=True)

    def postmaster(self):
        try:
            with open(os.path.join(self.data, 'postmaster.pid')) as file:
                return int(file.readline())
        except (OSError, ValueError):
            return None

    def kill_patroni(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def kill_server(self):
        """The whole server at once: its processes are of the postmaster's session."""
        pid = self.postmaster()
        if pid is None:
            return
        try:
            os.kill(pid, signal.SIGSTOP)
            children = subprocess.run(['ps', '-o', 'pid=', '--ppid', str(pid)],
                                      capture_output=True, text=True).stdout.split()
            for victim in children + [pid]:
                os.kill(int(victim), signal.SIGKILL)
        except ProcessLookupError:
            pass
        wait_for('death of ' + self.name, lambda: not is_alive(pid))

    def query(self, sql, isolation=None):
        """The rows of a statement, or of the last of several in one transaction."""
        connection = psycopg2.connect(
            host='127.0.0.1', port=self.port, user='postgres', dbname='postgres',
            connect_timeout=3, options='-c statement_timeout=60s')
        try:
            connection.set_session(isolation_level=isolation, autocommit=isolation is None)
            with connection.cursor() as cursor:
                cursor.execute(sql)
                return cursor.fetchall() if cursor.description else []
        finally:
            connection.close()

    def try_query(self, sql):
        try:
            return self.query(sql)
        except psycopg2.Error:
            return None

    def is_leader(self):
        return self.try_query('SELECT pg_is_in_recovery()') == [(False,)]

    def is_standby_of(self, leader):
        """Does it follow, and has it all indexes?"""
        return self.try_query(
            "SELECT EXISTS (SELECT FROM pg_stat_wal_receiver WHERE status = 'streaming' "
            "AND sender_port = %d) AND pg_is_in_recovery() AND "
            "(SELECT count(*) = %d FROM pmhash.indexes WHERE state = 'valid')"
            % (leader.port, len(INDEXES))) == [(True,)]

    def is_synchronous(self):
        """
        Is it the synchronous standby by what etcd says?  That is written after the leader
        waits for it, and without it none may follow the leader.
        """
        try:
            with urllib.request.urlopen('http://127.0.0.1:%d/sync' % self.rest, timeout=2) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def new_lines(self):
        with open(self.log, errors='replace') as file:
            file.seek(self.seen)
            text = file.read()
        self.seen += len(text.encode(errors='replace'))
        return text


def is_alive(pid):
    try:
        with open('/proc/%d/stat' % pid) as file:
            return file.read().rpartition(')')[2].split()[0] != 'Z'
    except OSError:
        return False


class Client(threading.Thread):
    """Inserts rows one by one, and remembers those whose commit was acknowledged."""

    def __init__(self, cluster, number):
        super().__init__(daemon=True)
        self.cluster = cluster
        self.number = number
        self.acknowledged = []
        self.stopped = False

    def run(self):
        n = 0
        while not self.stopped:
            try:
                connection = psycopg2.connect(self.cluster.write_dsn())
                connection.autocommit = True
                with connection.cursor() as cursor:
                    while not self.stopped:
                        n += 1
                        row = self.number * 10000000 + n
                        cursor.execute('INSERT INTO ack VALUES (%s, %s)', (self.number, row))
                        self.acknowledged.append(row)
            except psycopg2.Error:
                time.sleep(0.1)


class Cluster:
    def __init__(self, bindir, scratch, setup):
        self.bindir = bindir
        self.scratch = scratch
        self.setup = setup
        shutil.rmtree(scratch, ignore_errors=True)
        os.makedirs(scratch, mode=0o700)
        self.etcd_port = free_port()
        self.etcd = self.start_etcd()
        self.nodes = [Node(self, name) for name in ('one', 'two', 'three')]
        self.load = None
        self.stopped = False
        self.script = os.path.join(scratch, 'load.sql')
        with open(self.script, 'w') as file:
            file.write(LOAD)

    def start_etcd(self):
        url = 'http://127.0.0.1:%d' % self.etcd_port
        peer = 'http://127.0.0.1:%d' % free_port()
        with open(os.path.join(self.scratch, 'etcd.log'), 'w') as log:
            return subprocess.Popen(
                ['etcd', '--data-dir', os.path.join(self.scratch, 'etcd'), '--unsafe-no-fsync',
                 '--listen-client-urls', url, '--advertise-client-urls', url,
                 '--listen-peer-urls', peer, '--initial-advertise-peer-urls', peer,
                 '--initial-cluster', 'default=' + peer],
                stdout=log, stderr=log, start_new_session=True)

    def write_dsn(self):
        return ('host=%s port=%s user=postgres dbname=postgres connect_timeout=2 '
                'target_session_attrs=read-write' % (
                    ','.join('127.0.0.1' for _ in self.nodes),
                    ','.join(str(node.port) for node in self.nodes)))

    def leader(self, but=None):
        return next((n for n in self.nodes if n is not but and n.is_leader()), None)

    def first_leader(self):
        if self.nodes[0].process.poll() is not None:
            raise RuntimeError('Patroni has ended')
        return self.leader()

    def bring_up(self):
        self.nodes[0].start()
        leader = wait_for('the first leader', self.first_leader)
        with open(self.setup) as file:
            leader.query(file.read())
        leader.query(TABLES)
        for node in self.nodes[1:]:
            node.start()
        self.wait_for_standbys(leader)
        return leader

    def wait_for_standbys(self, leader):
        """All others follow it and have the indexes, and commits wait for one of them."""
        for node in self.nodes:
            if node is not leader:
                wait_for('%s as a standby of %s' % (node.name, leader.name),
                         lambda node=node: node.is_standby_of(leader))
        wait_for('a synchronous standby', lambda: leader.try_query(
            "SELECT count(*) > 0 FROM pg_stat_replication WHERE sync_state = 'sync'") == [(True,)])
        wait_for('a synchronous standby in etcd',
                 lambda: any(node.is_synchronous() for node in self.nodes))

    def keep_loading(self):
        while not self.stopped:
            self.load = subprocess.Popen(
                [os.path.join(self.bindir, 'pgbench'), '-n', '-c', '3', '-T', '600',
                 '-f', self.script, self.write_dsn()],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.load.wait()
            time.sleep(0.2)

    def last_lines(self):
        """The end of each log, for a message."""
        text = ''
        for name in ('etcd.log', 'one/log', 'two/log', 'three/log'):
            path = os.path.join(self.scratch, name)
            if os.path.exists(path):
                with open(path, errors='replace') as file:
                    text += '\n---- %s\n%s' % (name, ''.join(file.readlines()[-15:]))
        return text

    def patronictl(self, *arguments):
        return subprocess.run(['patronictl', '-c', self.nodes[0].configuration, *arguments],
                              capture_output=True, text=True)

    def stop(self):
        self.stopped = True
        if self.load is not None:
            self.load.kill()
        for node in self.nodes:
            node.kill_patroni()
        for node in self.nodes:
            node.kill_server()
        self.etcd.kill()
        self.etcd.wait()


# ---- ways to lose a leader; what is to be started again ----

def lose_node(cluster, leader):
    leader.kill_patroni()
    leader.kill_server()
    return [leader]


def lose_server(cluster, leader):
    leader.kill_server()
    return []


def switch_over(cluster, leader):
    others = [n for n in cluster.nodes if n is not leader]
    rows = leader.query("SELECT application_name FROM pg_stat_replication WHERE sync_state = 'sync'")
    candidate = next(n for n in others if n.name == rows[0][0])
    # (how the leader is named differs between versions; with --force it need not be)
    done = cluster.patronictl('switchover', 'pmhash', '--candidate', candidate.name, '--force')
    if done.returncode != 0:
        raise RuntimeError('switchover: ' + done.stdout + done.stderr)
    return []


def stop_in_order(cluster, leader):
    """Patroni ends, and stops its server cleanly."""
    leader.process.terminate()
    leader.process.wait()
    leader.process = None
    return [leader]


WAYS = (('kill -9 of the node', lose_node), ('switchover', switch_over),
        ('kill -9 of the server', lose_server), ('an orderly stop of the node', stop_in_order))


# ---- what must be there ----

def differences(leader):
    """Each key by index and by bitmap scan, against a sequential scan."""
    wrong = []
    for table, key, index in INDEXES:
        row = leader.query("SELECT by_index, by_bitmap FROM every_key('%s', '%s', '%s')"
                           % (table, key, index), isolation='REPEATABLE READ')[0]
        if row != ('same', 'same'):
            wrong.append('%s: %s' % (index, row))
        found = leader.query("SELECT pmhash.check('%s')" % index)
        wrong += ['%s: %s' % (index, f[0]) for f in found if f[0]]
    return wrong


def lost_rows(leader, clients, before):
    """Rows that were acknowledged and are not there, by index or by sequential scan."""
    wanted = sorted(row for n, client in enumerate(clients)
                    for row in client.acknowledged[:before[n]])
    array = "unnest('{%s}'::bigint[]) w" % ','.join(map(str, wanted))
    by_index = leader.query('SET enable_seqscan = off; SET enable_bitmapscan = off; '
                            'SELECT w FROM %s WHERE NOT EXISTS '
                            '(SELECT FROM ack WHERE n = w OFFSET 0)' % array)
    by_table = leader.query('SET enable_indexscan = off; SET enable_indexonlyscan = off; '
                            'SELECT w FROM %s EXCEPT SELECT n FROM ack' % array)
    return (['by index: %d' % row[0] for row in by_index] +
            ['in the table: %d' % row[0] for row in by_table]), len(wanted)


def fail_over(cluster, leader, name, way, clients):
    """Lose the leader, look at the next one at once; returns that."""
    cluster.wait_for_standbys(leader)
    for node in cluster.nodes:
        node.new_lines()
    time.sleep(1 + random.random() * 2)
    again = way(cluster, leader)
    begun = time.monotonic()
    before = [len(client.acknowledged) for client in clients]
    new = wait_for('a new leader', lambda: cluster.leader(leader if way is not lose_server else None))
    took = time.monotonic() - begun
    states = new.query("SELECT index::text, state FROM pmhash.indexes WHERE state <> 'valid'")
    wrong = differences(new)
    lost, n = lost_rows(new, clients, before)
    said = [line for line in new.new_lines().split('\n') if 'pmhash' in line and any(
        word in line for word in ('rebuil', 'not trusted', 'is given up', 'is disabled'))]
    if new is leader:           # it came back before the others took over: that is a restart
        said = []
    Test.check(not states, '%s: each index is valid on %s, %.1f s after' % (name, new.name, took), states)
    Test.check(not wrong, '%s: indexes and tables agree' % name, '\n'.join(wrong))
    Test.check(not lost, '%s: %d acknowledged rows are there' % (name, n), '\n'.join(lost[:20]))
    Test.check(not said, '%s: nothing is rebuilt' % name, '\n'.join(said))
    for node in again:
        node.start()
    cluster.wait_for_standbys(new)
    Test.check(True, '%s: the others follow, with their indexes' % name)
    return new


def main(bindir, scratch, n, setup):
    cluster = Cluster(bindir, scratch, setup)
    try:
        leader = cluster.bring_up()
        Test.check(True, 'three servers with logged indexes')
        clients = [Client(cluster, number + 1) for number in range(CLIENTS)]
        for thread in clients + [threading.Thread(target=cluster.keep_loading, daemon=True)]:
            thread.start()
        for number in range(n):
            kind, way = WAYS[number % len(WAYS)]
            leader = fail_over(cluster, leader, 'failover %d, %s' % (number + 1, kind), way, clients)
        for client in clients:
            client.stopped = True
    except (RuntimeError, psycopg2.Error, OSError) as error:
        Test.check(False, 'all failovers', str(error) + cluster.last_lines())
    finally:
        cluster.stop()
    return Test.failed != 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]))
