package driver_test

import (
	"fmt"

	"github.com/dlock-go/dlock/driver"
)

// What a store writes beside a lock, so that people can see its holder.
func ExampleHolder() {
	holder := driver.Holder{Host: "web1", PID: 4711, Program: "billing"}
	kept := holder.Encode()
	fmt.Println(driver.DecodeHolder(kept))
	// Output:
	// billing (pid 4711) on web1
}

func ExampleCheckName() {
	fmt.Println(driver.CheckName("orders/42"))
	fmt.Println(driver.CheckName(""))
	// Output:
	// <nil>
	// bad lock name: it is empty
}
