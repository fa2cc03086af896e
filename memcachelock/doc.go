// Package memcachelock keeps locks in memcached 1.6 or newer, for programs that have no other
// store.
//
//	store, err := memcachelock.New("cache.internal:11211", nil)
//	client := dlock.New(store, nil)
//
// memcached is a cache. When it needs memory it forgets a lock, and grants it to another owner
// although the holder still trusts its lease. That is good enough where two holders at once only
// waste work, such as filling a cache. Where two holders cost money, check the fencing token, or
// use another store. Diagnose reports how a server is configured.
//
// memcached forgets everything when it restarts. A server that has been running for less than
// the TTL therefore grants no lock: see Options.RestartDelay.
//
// A lock is one item under its name. It lasts up to five seconds longer than its TTL, because
// memcached counts in whole seconds, and its clock may be late by two.
//
// The store has its own connections. They must not go through a proxy that outlives the server:
// a connection older than a lock is how the store knows that the server has not restarted since.
package memcachelock
