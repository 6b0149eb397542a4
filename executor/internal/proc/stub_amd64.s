#include "textflag.h"

// stub is the code of a stub, see stub.go: it carries out the steps at stubData. A step is
// the number of a system call, four arguments, and the descriptor for the report of a failure;
// 0 ignores failures.
TEXT stub<>(SB), NOSPLIT|NOFRAME, $0
	MOVL $0x410000, BX // stubData
next:
	MOVQ 0(BX), AX
	MOVQ 8(BX), DI
	MOVQ 16(BX), SI
	MOVQ 24(BX), DX
	MOVQ 32(BX), R10
	SYSCALL
	ADDQ $48, BX
	TESTQ AX, AX
	JGE next
	CMPQ -8(BX), $0
	JEQ next
	NEGQ AX // the error replaces the first argument, and the report is the number with it
	MOVQ AX, -40(BX)
	MOVQ -8(BX), DI
	LEAQ -48(BX), SI
	MOVL $16, DX
	MOVL $1, AX // write
	SYSCALL
	MOVL $127, DI
	MOVL $231, AX // exit_group
	SYSCALL
	INT $3

DATA ·stubCode(SB)/8, $stub<>(SB)
GLOBL ·stubCode(SB), RODATA, $8
