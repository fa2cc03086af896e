package memcachelock

import "github.com/dlock-go/dlock/internal/lockstep"

// If the build fails here, the versions of this module and of github.com/dlock-go/dlock differ:
// require the same version of all modules of dlock.
const _ = lockstep.OneVersionOfAllModulesDevel
