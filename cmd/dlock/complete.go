package main

import (
	"context"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/spf13/cobra"
)

// completeNames offers the names of held locks to the shell. Whoever presses
// Tab does not wait for a store that does not answer, and wants no errors.
func (a *app) completeNames(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second)
	defer cancel()
	var names []string
	_ = a.withClient(ctx, func(client *dlock.Client, _ *openStore) error {
		for info, err := range client.Locks(ctx, prefix) {
			if err != nil {
				return err
			}
			if harmless(info.Name) == info.Name { // the others need quoting that shells do differently
				names = append(names, info.Name)
			}
		}
		return nil
	})
	return names, cobra.ShellCompDirectiveNoFileComp
}
