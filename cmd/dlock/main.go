// Command dlock runs commands under a distributed lock, and shows who holds what.
package main

import (
	"context"
	"os"
)

func main() {
	switch {
	case isGuard(os.Args):
		os.Exit(guard(os.Args))
	case isStarter(os.Args):
		os.Exit(starter(os.Args))
	case isDemoProcess(os.Args):
		os.Exit(demoProcess(os.Args, os.Stdin, os.Stdout))
	}
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
