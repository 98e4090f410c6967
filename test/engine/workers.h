/*-------------------------------------------------------------------------
 *
 * workers.h
 *	  Others at work on the same file: processes, or under ThreadSanitizer,
 *	  which only sees one process, threads.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_WORKERS_H
#define PMH_WORKERS_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit.h"

/* What all workers share. */
typedef struct Stage
{
	int			stop;			/* set to end them */
	int			ready;			/* counts those that have begun */
} Stage;

typedef void (*WorkerMain) (Stage *stage, int number);

typedef struct Worker
{
	WorkerMain	main;
	Stage	   *stage;
	int			number;
	pid_t		pid;
	pthread_t	thread;
} Worker;

static inline Stage *
stage_make(void)
{
	void	   *memory = mmap(NULL, sizeof(Stage), PROT_READ | PROT_WRITE,
							  MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	REQUIRE(memory != MAP_FAILED);
	return memory;
}

static inline bool
stage_stopped(Stage *stage)
{
	return __atomic_load_n(&stage->stop, __ATOMIC_RELAXED) != 0;
}

#ifdef __SANITIZE_THREAD__

static inline void *
worker_thread(void *arg)
{
	Worker	   *worker = arg;

	__atomic_fetch_add(&worker->stage->ready, 1, __ATOMIC_RELAXED);
	worker->main(worker->stage, worker->number);
	return NULL;
}

static inline void
worker_start(Worker *worker)
{
	REQUIRE(pthread_create(&worker->thread, NULL, worker_thread, worker) == 0);
}

static inline void
worker_join(Worker *worker)
{
	CHECK(pthread_join(worker->thread, NULL) == 0);
}

#else

static inline void
worker_start(Worker *worker)
{
	worker->pid = fork();
	REQUIRE(worker->pid >= 0);
	if (worker->pid == 0)
	{
		unit_failed = 0;
		__atomic_fetch_add(&worker->stage->ready, 1, __ATOMIC_RELAXED);
		worker->main(worker->stage, worker->number);
		_exit(unit_failed != 0);
	}
}

static inline void
worker_join(Worker *worker)
{
	int			status;

	REQUIRE(waitpid(worker->pid, &status, 0) == worker->pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

#endif

/* Start n workers, and wait until all of them have begun. */
static inline void
workers_start(Worker *worker, int n, WorkerMain worker_main, Stage *stage)
{
	stage->stop = 0;
	stage->ready = 0;
	fflush(stdout);
	for (int i = 0; i < n; i++)
	{
		worker[i] = (Worker) {.main = worker_main, .stage = stage, .number = i};
		worker_start(&worker[i]);
	}
	while (__atomic_load_n(&stage->ready, __ATOMIC_RELAXED) < n)
		usleep(100);
}

static inline void
workers_stop(Worker *worker, int n, Stage *stage)
{
	__atomic_store_n(&stage->stop, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < n; i++)
		worker_join(&worker[i]);
}

#endif							/* PMH_WORKERS_H */
