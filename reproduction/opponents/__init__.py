"""Methods and learners that the library's are measured against. Importing this package registers them by name in
`altmin.methods` and `altmin.continual`."""

from reproduction.opponents import continual, kfac, preconditioned
