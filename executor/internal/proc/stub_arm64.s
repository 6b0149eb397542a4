#include "textflag.h"

// stub is the code of a stub, see stub_amd64.s.
TEXT stub<>(SB), NOSPLIT|NOFRAME, $0
	MOVD $0x410000, R19 // stubData
next:
	MOVD 0(R19), R8
	MOVD 8(R19), R0
	MOVD 16(R19), R1
	MOVD 24(R19), R2
	MOVD 32(R19), R3
	SVC
	ADD $48, R19
	CMP $0, R0
	BGE next
	MOVD -8(R19), R4
	CBZ R4, next
	NEG R0, R0
	MOVD R0, -40(R19)
	MOVD R4, R0
	SUB $48, R19, R1
	MOVD $16, R2
	MOVD $64, R8 // write
	SVC
	MOVD $127, R0
	MOVD $94, R8 // exit_group
	SVC
	BRK

DATA ·stubCode(SB)/8, $stub<>(SB)
GLOBL ·stubCode(SB), RODATA, $8
