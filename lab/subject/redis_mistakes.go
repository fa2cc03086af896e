package subject

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// redisMistakes are the ways to lock on Redis that the articles warn of. Each makes
// one mistake; the rest of it is as good as it can be without dlock.
var redisMistakes = []Subject{
	{"redis/setnx-expire", Wrong, "SETNX, then EXPIRE in a second command",
		mistake{lock: setnxExpire, unlock: deleteIfOwner}.open},
	{"redis/delete-any", Wrong, "SET NX PX, and DEL without looking at the owner",
		mistake{lock: setNX, unlock: deleteAny}.open},
	{"redis/get-then-delete", Wrong, "SET NX PX, and to release GET, compare, DEL in two commands",
		mistake{lock: setNX, unlock: getThenDelete}.open},
	{"redis/getset-clock", Wrong, "the expiry is a time of the client's clock, and an expired lock is taken with GETSET",
		mistake{lock: getSet, unlock: deleteAny}.open},
	{"redis/no-watchdog", Wrong, "SET NX PX with a Lua release, not renewed, and the holder does not look at the time",
		mistake{lock: setNX, unlock: deleteIfOwner, careless: true}.open},
	{"redis/careless-watchdog", Wrong, "SET NX PX, renewed by EXPIRE without looking at the owner",
		mistake{lock: setNX, unlock: deleteIfOwner, renew: expireAny}.open},
	{"redis/no-fence", Wrong, "SET NX PX with a Lua release and renewal, as the articles recommend in the end: no token",
		noFence.open},
	{"redis/endless-renewal", Wrong, "SET NX PX with a renewal that waits for its answer without a limit; the holder learns from the answer that the lock is lost",
		mistake{lock: setNX, unlock: deleteIfOwner, renew: expireIfOwner, endless: true}.open},
	{"redis/new-owner", Wrong, "SET NX PX with a new random value at each attempt, so that its own lock looks foreign after a lost answer",
		mistake{lock: setNX, unlock: deleteIfOwner}.open},
	{"sentinel/no-fence", Wrong, "SET NX PX with a Lua release and renewal: no token, and no replica is asked",
		noFence.open},
	{"cluster/no-fence", Wrong, "SET NX PX with a Lua release and renewal: no token, and no replica is asked",
		noFence.open},
	{"redis/no-expiry", Wrong, "SETNX without any expiry",
		mistake{lock: setnxOnly, unlock: deleteIfOwner, careless: true}.open},
	{"redis/list-queue", Wrong, "waiters stand in a list, and only the first may take the lock: a dead one stays the first", openQueue},
	{"redis/one-by-one", Wrong, "several names are locked one after the other, in the order that the caller gave", openOneByOne},
}

// noFence is the best of them.
var noFence = mistake{lock: setNX, unlock: deleteIfOwner, renew: expireIfOwner}

// mistake is a way to lock on Redis, put together from commands.
type mistake struct {
	lock     func(ctx context.Context, r redis.UniversalClient, c Config, owner string) (bool, error)
	unlock   func(ctx context.Context, r redis.UniversalClient, name, owner string) error
	renew    func(ctx context.Context, r redis.UniversalClient, c Config, owner string) (bool, error) // every third of the TTL; optional
	careless bool                                                                                     // the holder does not look at the time
	endless  bool                                                                                     // calls have no time limit, and the holder trusts the lock until a renewal is refused
}

func (m mistake) open(_ context.Context, c Config) (Locker, error) {
	client, err := openRedis(c.URL)
	if m.endless {
		options, err := redis.ParseURL(c.URL)
		if err != nil {
			return nil, err
		}
		options.ReadTimeout, options.WriteTimeout, options.MaxRetries = -1, -1, -1
		client = redis.NewClient(options)
	}
	return lockFunc(func(ctx context.Context) (Held, error) { return m.acquire(ctx, client, c) }), err
}

// openRedis opens a client for a server, for a master that sentinels know, or for a cluster.
func openRedis(url string) (redis.UniversalClient, error) {
	scheme, rest, _ := strings.Cut(url, "://")
	hosts, name, _ := strings.Cut(rest, "/")
	name, _, _ = strings.Cut(name, "?")
	switch scheme {
	case "redis+sentinel":
		return redis.NewFailoverClient(&redis.FailoverOptions{MasterName: name, SentinelAddrs: strings.Split(hosts, ","), ReadTimeout: time.Second}), nil
	case "redis+cluster":
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: strings.Split(hosts, ","), ReadTimeout: time.Second}), nil
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	options.ReadTimeout, options.MaxRetries = time.Second, -1
	return redis.NewClient(options), nil
}

// acquire waits for the lock.
func (m mistake) acquire(ctx context.Context, r redis.UniversalClient, c Config) (Held, error) {
	h := &mistakeHeld{mistake: m, redis: r, config: c, stop: make(chan struct{})}
	err := pollLock(ctx, func() (bool, error) {
		asked := time.Now()
		h.owner = rand.Text()
		ok, err := m.lock(ctx, r, c, h.owner)
		if ok {
			h.extend(asked)
		}
		if ctx.Err() == nil {
			err = nil // no answer: try again
		}
		return ok, err
	})
	if err == nil && m.renew != nil {
		go h.watch() //nolint:gosec // it renews the lock after this call has ended
	}
	return h, err
}

type mistakeHeld struct {
	mistake
	redis  redis.UniversalClient
	config Config
	owner  string
	stop   chan struct{}
	lost   atomic.Bool               // a renewal was refused
	until  atomic.Pointer[time.Time] // by the time of this process
}

func (h *mistakeHeld) extend(asked time.Time) {
	until := asked.Add(h.config.TTL)
	h.until.Store(&until)
}

// watch renews the lock.
func (h *mistakeHeld) watch() {
	for {
		select {
		case <-h.stop:
			return
		case <-time.After(h.config.TTL / 3):
		}
		asked := time.Now()
		switch ok, err := h.renew(context.Background(), h.redis, h.config, h.owner); {
		case ok:
			h.extend(asked)
		case err == nil:
			h.lost.Store(true)
			return
		}
	}
}

func (h *mistakeHeld) Believes() bool {
	if h.endless {
		return !h.lost.Load()
	}
	return h.careless || time.Now().Before(*h.until.Load())
}

func (h *mistakeHeld) Token() uint64 { return 0 }

func (h *mistakeHeld) Unlock(ctx context.Context) error {
	close(h.stop)
	return h.unlock(ctx, h.redis, h.config.Name, h.owner)
}

// openQueue asks for the lock only when it is the first of a list.
func openQueue(_ context.Context, c Config) (Locker, error) {
	client, err := openRedis(c.URL)
	return lockFunc(func(ctx context.Context) (Held, error) {
		queue, me := c.Name+":queue", rand.Text()
		if err := client.RPush(ctx, queue, me).Err(); err != nil {
			return nil, err
		}
		err := pollLock(ctx, func() (bool, error) {
			first, err := client.LIndex(ctx, queue, 0).Result()
			return first == me, err
		})
		if err != nil {
			return nil, err
		}
		held, err := noFence.acquire(ctx, client, c)
		if err != nil {
			return nil, err
		}
		return held, client.LRem(ctx, queue, 1, me).Err()
	}), err
}

func openOneByOne(_ context.Context, c Config) (Locker, error) {
	client, err := openRedis(c.URL)
	return oneByOne{client, c}, err
}

// oneByOne locks names in the order that it was given.
type oneByOne struct {
	redis  redis.UniversalClient
	config Config
}

func (l oneByOne) Lock(ctx context.Context) (Held, error) {
	return l.LockAll(ctx, []string{l.config.Name})
}

// LockAll implements BatchLocker.
func (l oneByOne) LockAll(ctx context.Context, names []string) (Held, error) {
	var all []Held
	for _, name := range names {
		c := l.config
		c.Name = name
		one, err := noFence.acquire(ctx, l.redis, c)
		if err != nil {
			return nil, err // and keeps the others, which are renewed
		}
		all = append(all, one)
	}
	return held{believes: all[0].Believes, unlock: func(ctx context.Context) (err error) {
		for _, one := range all {
			err = errors.Join(err, one.Unlock(ctx))
		}
		return err
	}}, nil
}

func setNX(ctx context.Context, r redis.UniversalClient, c Config, owner string) (bool, error) {
	return r.SetNX(ctx, c.Name, owner, c.TTL).Result()
}

func setnxOnly(ctx context.Context, r redis.UniversalClient, c Config, owner string) (bool, error) {
	return r.SetNX(ctx, c.Name, owner, 0).Result()
}

func setnxExpire(ctx context.Context, r redis.UniversalClient, c Config, owner string) (bool, error) {
	ok, err := setnxOnly(ctx, r, c, owner)
	if err != nil || !ok {
		return false, err
	}
	return r.PExpire(ctx, c.Name, c.TTL).Result()
}

// getSet takes a lock whose time is over by the clock of this process.
func getSet(ctx context.Context, r redis.UniversalClient, c Config, _ string) (bool, error) {
	expires := strconv.FormatInt(c.now().Add(c.TTL).UnixMilli(), 10)
	ok, err := r.SetNX(ctx, c.Name, expires, 0).Result()
	if ok || err != nil {
		return ok, err
	}
	old, err := r.Get(ctx, c.Name).Result()
	if err != nil {
		return false, ignoreNil(err)
	}
	if at, err := strconv.ParseInt(old, 10, 64); err != nil || at > c.now().UnixMilli() {
		return false, err
	}
	before, err := r.GetSet(ctx, c.Name, expires).Result()
	return err == nil && before == old, ignoreNil(err)
}

func ignoreNil(err error) error {
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}

func deleteAny(ctx context.Context, r redis.UniversalClient, name, _ string) error {
	return r.Del(ctx, name).Err()
}

func getThenDelete(ctx context.Context, r redis.UniversalClient, name, owner string) error {
	value, err := r.Get(ctx, name).Result()
	if err != nil || value != owner {
		return ignoreNil(err)
	}
	return r.Del(ctx, name).Err()
}

var (
	ownedDelete = redis.NewScript(`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end return 0`)
	ownedExpire = redis.NewScript(`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("pexpire", KEYS[1], ARGV[2]) end return 0`)
)

func deleteIfOwner(ctx context.Context, r redis.UniversalClient, name, owner string) error {
	return ownedDelete.Run(ctx, r, []string{name}, owner).Err()
}

func expireIfOwner(ctx context.Context, r redis.UniversalClient, c Config, owner string) (bool, error) {
	n, err := ownedExpire.Run(ctx, r, []string{c.Name}, owner, c.TTL.Milliseconds()).Int()
	return n == 1, err
}

func expireAny(ctx context.Context, r redis.UniversalClient, c Config, _ string) (bool, error) {
	return r.PExpire(ctx, c.Name, c.TTL).Result()
}
