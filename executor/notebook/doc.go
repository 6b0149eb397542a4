// Package notebook runs cells of Python in Jupyter kernels, one for each
// session, without a Jupyter server. It knows no actions.
//
// A kernel is ipykernel in a Python of the image, started on first use with the
// user's rights and spoken to by the Jupyter messaging protocol 5.3 over ZMTP
// 3.0 on Unix sockets. They lie in a directory that only the user
// may enter, and the server opens them with the user's rights and asks who
// answers: a link put in their place leads nowhere that the user could not go.
//
// # Trust in a kernel
//
// A kernel is not trusted. It has the user's rights, and whatever runs in it may write to the
// sockets itself. Every length that it sends is bounded before anything is
// allocated, long strings are clipped while they are read, and a message that
// cannot be understood is dropped, or ends the kernel and not the server.
//
// # When a cell is over
//
// When its execute_reply and the idle status with its id have both come, in
// either order: they travel on two sockets, and each overtakes the other. Output
// never does, because it travels with the status. The process is waited for, so
// that its death ends the cell at once.
package notebook
