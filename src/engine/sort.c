/*-------------------------------------------------------------------------
 *
 * sort.c
 *	  Sorting numbers (values of a key, TIDs, hashes) and entries.
 *
 * Without memory of its own, by the highest bits in which the numbers differ,
 * eight at a time (P. M. McIlroy, K. Bostic, M. D. McIlroy, Engineering Radix Sort,
 * Computing Systems 6(1), 1993, "American flag sort").  Numbers that are spread evenly
 * take two or three passes; a comparison sort takes as many as their number
 * has bits, each with a branch that cannot be predicted.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "compiler.h"
#include "sort.h"

/* So many and fewer are sorted by insertion. */
#define FEW			24

/* Numbers that are looked at, or moved, until it is asked whether to go on. */
#define AT_ONCE		32768

/* It is asked before so many and more are looked at. */
#define ASK_FROM	1000

#define DIGIT_BITS	PMH_DEAL_BITS
#define DIGITS		PMH_DEAL_DIGITS

/* Has so much been done that it is to be asked, and does stop() say so then? */
static inline bool __attribute__((always_inline))
is_stopped(bool (*stop) (void), size_t done)
{
	return stop != NULL && done % AT_ONCE == 0 && stop();
}

/*
 * Bring elements of so many 'words' into the order of a digit, 'bits' wide, of their word
 * 'key'; start[d] .. start[d + 1] are those of d.  False: stopped, with all of them there.
 * (Compiled for each kind of elements.)
 */
static inline bool __attribute__((always_inline))
permute(uint64_t *word, size_t n, const unsigned words, const unsigned key, uint32_t shift,
		uint32_t bits, size_t *start, bool (*stop) (void))
{
#define DIGIT(number)	((number) >> shift & (digits - 1))
	const uint32_t digits = UINT32_C(1) << bits;
	size_t		next[DIGITS] = {0};
	size_t		moved = 0;

	PMH_ASSERT(bits <= DIGIT_BITS && shift + bits <= 64 && words <= 2 && key < words);
	for (size_t i = 0; i < n; i++)
	{
		if (is_stopped(stop, i))
			return false;
		next[DIGIT(word[i * words + key])]++;
	}
	start[0] = 0;
	for (uint32_t d = 0; d < digits; d++)
	{
		start[d + 1] = start[d] + next[d];
		next[d] = start[d];
	}
	PMH_ASSERT(start[digits] == n);
	for (uint32_t d = 0; d < digits; d++)
	{
		while (next[d] < start[d + 1])
		{
			uint64_t	element[2];
			uint64_t	to;

			memcpy(element, word + next[d] * words, words * sizeof(uint64_t));
			while ((to = DIGIT(element[key])) != d)
			{
				uint64_t   *place = word + next[to]++ * words;
				uint64_t	other[2];

				memcpy(other, place, words * sizeof(uint64_t));
				memcpy(place, element, words * sizeof(uint64_t));
				memcpy(element, other, words * sizeof(uint64_t));
				if (is_stopped(stop, ++moved))
				{
					memcpy(word + next[d] * words, element, words * sizeof(uint64_t));
					return false;
				}
			}
			memcpy(word + next[d]++ * words, element, words * sizeof(uint64_t));
			if (is_stopped(stop, ++moved))
				return false;
		}
	}
	return true;
#undef DIGIT
}

static inline bool __attribute__((always_inline))
precedes(const uint64_t *a, const uint64_t *b, const unsigned words)
{
	return a[0] != b[0] || words == 1 ? a[0] < b[0] : a[1] < b[1];
}

typedef bool (*Sort) (uint64_t *word, size_t n, bool (*stop) (void));

/* Sort elements of so many words.  'again' is this function for the same ones. */
static inline bool __attribute__((always_inline))
sort(uint64_t *word, size_t n, const unsigned words, bool (*stop) (void), Sort again)
{
	size_t		start[DIGITS + 1];
	uint64_t	differing[2] = {0, 0};	/* bits, in each word */
	bool		in_order = true;
	unsigned	key;
	uint32_t	top;
	uint32_t	shift;

	if (n <= FEW)
	{
		for (size_t i = 1; i < n; i++)
		{
			uint64_t	element[2];
			size_t		j = i;

			memcpy(element, word + i * words, words * sizeof(uint64_t));
			for (; j > 0 && precedes(element, word + (j - 1) * words, words); j--)
				memcpy(word + j * words, word + (j - 1) * words, words * sizeof(uint64_t));
			memcpy(word + j * words, element, words * sizeof(uint64_t));
		}
		return true;
	}
	if (stop != NULL && n >= ASK_FROM && stop())
		return false;
	for (size_t i = 1; i < n; i++)
	{
		const uint64_t *w = word + i * words;

		if (is_stopped(stop, i))
			return false;
		for (unsigned k = 0; k < words; k++)
			differing[k] |= w[k] ^ word[k];
		in_order &= !precedes(w, w - words, words);
	}
	if (in_order)
		return true;
	key = words == 2 && differing[0] == 0;
	top = 64 - (uint32_t) __builtin_clzll(differing[key]);
	shift = top > DIGIT_BITS ? top - DIGIT_BITS : 0;
	if (!(key == 0 ? permute(word, n, words, 0, shift, DIGIT_BITS, start, stop) :
		  permute(word, n, words, words - 1, shift, DIGIT_BITS, start, stop)))
		return false;
	for (unsigned d = 0; d < DIGITS && (shift > 0 || key < words - 1); d++)
	{
		if (start[d + 1] - start[d] > 1 &&
			!again(word + start[d] * words, start[d + 1] - start[d], stop))
			return false;
	}
	return true;
}

bool
pmh_sort_numbers(uint64_t *number, size_t n, bool (*stop) (void))
{
	return sort(number, n, 1, stop, pmh_sort_numbers);
}

/* An entry is two words, the hash and the value. */
_Static_assert(sizeof(PmhEntry) == 2 * sizeof(uint64_t) && offsetof(PmhEntry, hash) == 0,
			   "entries are sorted as pairs of words");

static bool
sort_pairs(uint64_t *word, size_t n, bool (*stop) (void))
{
	return sort(word, n, 2, stop, sort_pairs);
}

bool
pmh_sort_entries(PmhEntry *entry, size_t n, bool (*stop) (void))
{
	return sort_pairs((uint64_t *) entry, n, stop);
}

bool
pmh_deal_entries(PmhEntry *entry, size_t n, uint32_t shift, uint32_t bits, size_t *start,
				 bool (*stop) (void))
{
	return permute((uint64_t *) entry, n, 2, 0, shift, bits, start, stop);
}
