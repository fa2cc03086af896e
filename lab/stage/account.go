package stage

// Ledger is an account that processes read, add one to, and write. Each deposit that
// was accepted must be in the balance.
type Ledger struct {
	Balance  int `json:"balance"`
	Accepted int `json:"accepted"` // deposits
	Refused  int `json:"refused"`

	fenced bool
	token  uint64 // the greatest token of a write
}

// AddsUp reports whether every accepted deposit is in the balance.
func (l *Ledger) AddsUp() bool { return l.Balance == l.Accepted }

// write sets the balance, and reports whether the ledger accepted it.
func (l *Ledger) write(balance int, token uint64) bool {
	if l.fenced && token < l.token {
		l.Refused++
		return false
	}
	l.token = token
	l.Balance = balance
	l.Accepted++
	return true
}

// Account is written by processes that believe to have the lock. It is kept twice:
// in a ledger that accepts every write, and in one that refuses a write whose token
// is smaller than an earlier one. Writes without a token go to the first one only.
type Account struct {
	Open   Ledger `json:"open"`
	Fenced Ledger `json:"fenced"`
}

// balances are what a process has read.
type balances struct {
	Open   int `json:"open"`
	Fenced int `json:"fenced"`
}

func (a *Account) read() balances { return balances{a.Open.Balance, a.Fenced.Balance} }

// write adds one to what was read. It reports whether the fence accepted the write, and whether the write
// destroys one that came after the reading.
func (a *Account) write(read balances, token uint64) (accepted, stale bool) {
	stale = a.Open.Balance != read.Open
	a.Open.write(read.Open+1, token)
	if token == 0 {
		return true, stale
	}
	stale = a.Fenced.Balance != read.Fenced
	accepted = a.Fenced.write(read.Fenced+1, token)
	return accepted, accepted && stale
}
