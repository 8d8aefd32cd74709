// Programs come in forms, each a kernel of its own: FORM 0 is right.
#pragma once
#define FORM(program, n) template __global__ decltype(program<n>) program<n>;
#define FORMS_2(program) FORM(program, 0) FORM(program, 1)
#define FORMS_3(program) FORMS_2(program) FORM(program, 2)
#define FORMS_4(program) FORMS_3(program) FORM(program, 3)
#define FORMS_5(program) FORMS_4(program) FORM(program, 4)
#define FORMS_6(program) FORMS_5(program) FORM(program, 5)
#define FORMS_7(program) FORMS_6(program) FORM(program, 6)
