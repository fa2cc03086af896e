//go:build !linux

package main

import (
	"context"
	"errors"
)

var soakRoles map[string]func(task []byte) error

func runSoak(context.Context, []string) error {
	return errors.New("a soak starts servers and moves their clocks: it needs Linux")
}
