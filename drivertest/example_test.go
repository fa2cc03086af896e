package drivertest_test

import (
	"fmt"

	"github.com/dlock-go/dlock/drivertest"
)

// What Run checks can be listed, with the words of the contract. The test of a store is
//
//	func TestConformance(t *testing.T) { drivertest.Run(t, drivertest.Config{Open: open}) }
func ExampleClauses() {
	for _, clause := range drivertest.Clauses() {
		if clause.ID == "release-owner" {
			fmt.Println(clause.ID, clause.Explanation != "")
		}
	}
	// Output:
	// release-owner true
}
