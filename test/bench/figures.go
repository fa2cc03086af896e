package main

import (
	"slices"
	"time"
)

// figures are the results of one round of one subject, by name.
type figures map[string]float64

// The figures of every line of JSON, null where they do not apply.
const (
	pairsPerS  = "pairs_per_s"       // locks and unlocks per second, of all goroutines together
	p50        = "p50_us"            // median time of a lock and an unlock, without the holding
	p99        = "p99_us"            // 99th percentile of the same
	p99Wait    = "p99_wait_ms"       // 99th percentile of the time of a lock, under contention
	jain       = "jain"              // Jain's index of the pairs per goroutine: 1 is equal shares, 1/n is all pairs for one goroutine
	perPair    = "commands_per_pair" // commands to the store per pair, with failed attempts
	lowestRate = "pairs_per_s_min"   // lowest of the rounds
	bestRate   = "pairs_per_s_max"
)

// fixed are the figures of every line, in order.
var fixed = []string{pairsPerS, p50, p99, p99Wait, jain, perPair}

// Figures of single cases.
const (
	handoverP50 = "handover_p50_us" // from the start of the unlock in one process to the grant in another process that waited
	handoverP99 = "handover_p99_us"
	// Hand-overs between processes per second. Few of them, together with a low
	// jain, mean that one process keeps the lock to itself.
	handoversPerS = "handovers_per_s"

	// The cost of a pair on the servers.
	executedPerPair  = "executed_per_pair"      // commands, including those inside scripts
	serverCPUPerPair = "server_cpu_us_per_pair" // of all servers

	waiterCount     = "waiters"
	bytesPerWaiter  = "bytes_per_waiter" // heap and stack of a waiter, beyond a goroutine that is parked on a channel
	heapPerWaiter   = "heap_per_waiter"  // the part of it that is on the heap
	storeContenders = "store_contenders" // waiters that the store knows
	requestsPerS    = "requests_per_s"   // commands to the store by a client that is idle, or whose callers share their grant
	storeHolders    = "store_holders"    // the most that the store listed for one name
	leaseCount      = "leases"
	bytesPerLease   = "bytes_per_lease"  // heap of a held lock, with its record in a store in memory
	goroutinesAdded = "goroutines_added" // by the client with all its locks
	renewCPUShare   = "renew_cpu_share"  // of one core, for renewing all locks
	serverCPUShare  = "server_cpu_share" // of one core, during the renewals
	// Commands to the servers to renew all locks once.
	requestsPerRenewal = "requests_per_renewal"
	ttlSeconds         = "ttl_s"          // TTL of the renewed leases
	renewalsPerS       = "renewals_per_s" // locks renewed per second
	acquisitionsPerS   = "acquisitions_per_s"

	point     = "at"            // what grows, in a curve of growth
	aboveBare = "above_bare_ms" // median time of a command, beyond that of the command without a lock

	// The rate divided by that of another subject in the same round; the median of
	// the rounds.
	rateOfFloor     = "rate_of_floor"
	rateOfPeer      = "rate_of_best_peer"
	rateOfExclusive = "rate_of_exclusive" // of dlock's own exclusive lock
)

// percentile sorts durations and returns their p-th percentile.
func percentile(durations []time.Duration, p float64) time.Duration {
	if len(durations) == 0 {
		return 0
	}
	slices.Sort(durations)
	return durations[min(int(p/100*float64(len(durations))), len(durations)-1)]
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// jainIndex returns Jain's fairness index of the shares.
func jainIndex(shares []uint64) float64 {
	var sum, squares float64
	for _, s := range shares {
		sum += float64(s)
		squares += float64(s) * float64(s)
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(shares)) * squares)
}

// median returns the median of the rounds for each figure, and the spread of the
// rate.
func median(rounds []figures) figures {
	byName := make(map[string][]float64)
	for _, round := range rounds {
		for name, value := range round {
			byName[name] = append(byName[name], value)
		}
	}
	result := make(figures)
	for name, values := range byName {
		slices.Sort(values)
		middle := len(values) / 2
		result[name] = values[middle]
		if len(values)%2 == 0 {
			result[name] = (values[middle-1] + values[middle]) / 2
		}
	}
	if rates := byName[pairsPerS]; len(rates) > 0 {
		result[lowestRate], result[bestRate] = rates[0], rates[len(rates)-1]
	}
	return result
}
