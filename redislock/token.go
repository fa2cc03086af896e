package redislock

import (
	"fmt"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/redislock/internal/master"
)

// A token is the server's clock in microseconds, or one more than the last token if that is larger.
// So tokens rise even if the counter is lost. The counter beside the lock is the last token that
// was drawn. A grant has Store.step tokens in a row. The server keeps the last of them, in the counter
// and in the holder value.

// tokenStep is how many tokens a grant has. A token is a microsecond: with 64 of them tokens run ahead
// of the clock from 15,600 grants of one name in a second on. A member of a Redlock has master.TokenStep.
const tokenStep = 64

// maxToken is the first number that scripts reject, because Lua counts exactly only up to it.
const maxToken = 1 << 53

// checkFloor rejects the first token of a grant after which a script could not draw another one.
func checkFloor(floor uint64) error {
	const limit = maxToken - 2*master.TokenStep
	if floor > limit {
		return fmt.Errorf("token %d is too large (want %d at most)", floor, uint64(limit))
	}
	return nil
}

func parseToken(text string) (uint64, error) {
	token, err := strconv.ParseUint(text, 10, 64)
	if err != nil || token == 0 {
		return 0, fmt.Errorf("%w: %q is not a token", errReply, text)
	}
	return token, nil
}

// lastToken returns the last token of a grant, which is the one that the server keeps.
func (s *Store) lastToken(grant driver.Grant) uint64 { return grant.Token + s.step - 1 }

// ownerValues keeps a number for a few owners until it is removed. If there are many, it forgets
// owners that have not asked for two TTLs. In Store.unconfirmed the number is a proposed token that
// the caller must not get: the counter was ahead of it, or the reply that says so was lost. If the
// owner asks again, it gets a new token.
type ownerValues struct {
	any atomic.Bool // the map is not empty, which is rare

	mu     sync.Mutex
	values map[driver.Owner]ownerValue
}

type ownerValue struct {
	value uint64
	until time.Time // when the owner can be forgotten
}

// add keeps the value, unless the owner has one: only the first attempt proposes a token.
func (o *ownerValues) add(owner driver.Owner, value uint64, ttl time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.values == nil {
		o.values = make(map[driver.Owner]ownerValue)
	}
	until := time.Now().Add(2 * ttl)
	if known, ok := o.values[owner]; ok {
		o.values[owner] = ownerValue{known.value, until}
		return
	}
	if len(o.values)%1024 == 1023 { // forget owners that never asked again
		maps.DeleteFunc(o.values, func(_ driver.Owner, v ownerValue) bool { return time.Now().After(v.until) })
	}
	o.values[owner] = ownerValue{value, until}
	o.any.Store(true)
}

// of returns the owner's value, or zero.
func (o *ownerValues) of(owner driver.Owner) uint64 {
	if !o.any.Load() {
		return 0
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.values[owner].value
}

func (o *ownerValues) remove(owner driver.Owner) {
	if !o.any.Load() {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.values, owner)
	o.any.Store(len(o.values) > 0)
}

// drawnTokens keeps the last tokens that this store has drawn. Of a name that is locked thousands of times
// in a second they may be ahead of the clock: a proposal of the clock would be drawn again.
type drawnTokens struct {
	step uint64

	mu   sync.Mutex
	last map[string]uint64 // by key
}

// maxDrawnTokens is how many are kept. To forget them costs one round trip for a name
// of the plain protocol whose tokens are ahead of the clock.
const maxDrawnTokens = 1024

// propose returns the last token of the next grant of key. Its first token is a multiple of the step, and
// at least floor.
func (d *drawnTokens) propose(key string, floor uint64) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if next := d.last[key] + 1; checkFloor(next) == nil { // otherwise the script says that the counter is too large
		floor = max(floor, next)
	}
	first := (floor + d.step - 1) / d.step * d.step
	return first + d.step - 1
}

func (d *drawnTokens) note(key string, last uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last == nil || len(d.last) >= maxDrawnTokens {
		d.last = make(map[string]uint64)
	}
	d.last[key] = last
}
