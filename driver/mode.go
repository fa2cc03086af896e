package driver

import "fmt"

// Mode says how many holders a lock may have at the same time. The zero value is exclusive.
//
// An exclusive holder excludes all others. Shared holders exclude exclusive ones. A limit
// makes the lock a semaphore, whose holders have a permit each: it admits that many. A request
// with a limit is not Shared. While a name is in use with a limit, the store refuses requests with
// another limit or none. While it is in use without a limit, the store refuses requests with one.
// The error is a [*ModeError]. A free name may be used in any mode.
//
// Exclusive requests do not starve. If the store refuses an exclusive request with
// Request.Queue because of shared holders, it keeps a place for the request, as it does for
// fair requests. While the place exists, the store refuses shared requests of owners that do
// not hold the lock.
//
// Fair requests of all modes are served in the order of arrival. Shared requests that follow each
// other at the head of the queue are granted together, and so are as many permits as are free.
type Mode struct {
	Shared bool // other shared holders are admitted
	Limit  int  // how many holders there may be; zero for a lock, which is not a semaphore
}

// String describes the mode in a word or two.
func (m Mode) String() string {
	switch {
	case m.Limit > 0:
		return fmt.Sprintf("limit %d", m.Limit)
	case m.Shared:
		return "shared"
	}
	return "exclusive"
}

// ModeError says that a name is in use with another limit, or as a lock instead of a
// semaphore. errors.Is reports that it is [ErrMode].
type ModeError struct {
	Name string
	Mode Mode // that the name is in use with
}

func (e *ModeError) Error() string {
	if e.Mode.Limit > 0 {
		return fmt.Sprintf("%q is in use as a semaphore with %v", e.Name, e.Mode)
	}
	return fmt.Sprintf("%q is in use as a lock, not as a semaphore", e.Name)
}

// Is makes errors.Is(err, ErrMode) true.
func (e *ModeError) Is(target error) bool { return target == ErrMode }
