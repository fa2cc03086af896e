// Package memcachelock keeps locks in memcached, for those who have nothing else.
//
//	store, err := memcachelock.New("cache.internal:11211", nil)
//	client := dlock.New(store, nil)
//
// memcached is a cache. When it needs the memory it forgets a lock, and then gives it to
// the next who asks although somebody still believes in it. That is good enough where two
// at once only waste work, such as filling a cache. Where two at once cost money,
// check the fencing token, or use another store. Diagnose says what a server is
// configured to do.
//
// It also forgets everything when it restarts. A server that has been running for
// less than the TTL therefore gives no lock: see Options.RestartDelay.
//
// A lock is one item under its name. It lasts up to five seconds longer than its
// TTL, because memcached counts in whole seconds, and its clock may be late by two.
//
// The store talks to memcached 1.6 or newer, over connections of its own, and needs the
// meta commands, which alone can delete an item only if nobody has changed it. There
// must be no proxy in between that outlives the server: that a connection is older
// than a lock is how the store knows that the server has not restarted since.
package memcachelock
