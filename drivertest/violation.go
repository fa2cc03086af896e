package drivertest

import "fmt"

// Violation is a broken promise.
type Violation struct {
	Clause      string // which one: the name of a [Clause]
	Explanation string // what the contract demands
	Detail      string // what the store did instead
}

func (v *Violation) Error() string {
	return fmt.Sprintf("%s: %s\n\tthe contract: %s", v.Clause, v.Detail, v.Explanation)
}
